"""Which CPUs are near a device: a copy between sockets takes the long way.

neuron-ls tells node and CPUs from some release on; where it does not, the kernel does, under
`/sys/bus/pci/devices/<address>/numa_node` and `/sys/devices/system/node/node<N>/cpulist`. A host
with one node, or one that hides them, as most virtual machines do, says -1: nothing is near then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuroncompile.hardware.neuron_ls import Device

__all__ = ["SYS", "cpu_list", "cpus_near", "cpus_of_node", "node_of"]

SYS = Path("/sys")
_MOST = 1 << 16  # CPUs of a list that is believed
_ADDRESS = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")


def cpu_list(text: str) -> tuple[int, ...]:
    """ "48-95,144" as Linux writes lists of CPUs → the numbers.

    Raises:
        ValueError: it is no such list.
    """
    found: list[int] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        first, dash, last = part.partition("-")
        numbers = range(int(first), int(last if dash else first) + 1)
        if not numbers or len(numbers) > _MOST:
            raise ValueError(f"{part!r} is no range of numbers")
        found += numbers
    return tuple(found)


def node_of(address: str, sys: Path = SYS) -> int | None:
    """NUMA node of a PCI device, "00:1e.0" or "0000:00:1e.0"; None without one."""
    if not _ADDRESS.fullmatch(address):
        return None
    full = address.lower() if address.count(":") == 2 else f"0000:{address.lower()}"
    try:
        node = int((sys / "bus/pci/devices" / full / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def cpus_of_node(node: int, sys: Path = SYS) -> tuple[int, ...]:
    """CPUs of a NUMA node; none where the kernel does not tell."""
    try:
        text = (sys / f"devices/system/node/node{node}/cpulist").read_text(encoding="ascii")
        return cpu_list(text)
    except (OSError, ValueError):
        return ()


def cpus_near(
    devices: Sequence[Device], cores: Sequence[int], sys: Path = SYS
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """NUMA nodes of the devices that have these logical cores, and the CPUs of those nodes.

    Returns:
        Both empty where one device's node is not known: half a binding would be a wrong one.
    """
    wanted = set(cores)
    nodes, cpus = set[int](), set[int]()
    for device in devices:
        if not wanted.intersection(device.cores):
            continue
        node = device.numa_node if device.numa_node is not None else node_of(device.address, sys)
        near = (device.cpus or cpus_of_node(node, sys)) if node is not None else ()
        if node is None or not near:
            return (), ()
        nodes.add(node)
        cpus.update(near)
    return tuple(sorted(nodes)), tuple(sorted(cpus))
