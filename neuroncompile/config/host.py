"""Host memory and disk that making a program takes.

Two peaks, which do not overlap. *Sharding* holds the checkpoint, a second copy where its dtype
is not the compiled one, and the shard being cut. *Compiling* holds one compiler for each graph in
work. Both are estimates, given as ranges.

Basis: DeepSeek-V3's 642 GB of FP8 became bfloat16 in 2 TB of memory and 400 GB of swap; 12 GB of
bfloat16 at one rank died on a host of 16 GB; 16 GB at one rank on one of 32 GB. One neuronx-cc
was seen at 36 GB for a prefill graph on trn2, and above 124 GB for 16,384 tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from neuroncompile.config.dimensions import Dimensions
from neuroncompile.config.sizing import BYTES

__all__ = ["HostNeed", "checkpoint_bytes", "compiler_bytes", "host_need"]

GB = 10**9
PROCESS = 3 * GB
"""Python with torch and torch-xla, traced graphs included."""
SMALL, LARGE, LONG = 16 * GB, 40 * GB, 128 * GB
"""One compiler: a small model, a large one on trn2 and trn3, and beyond 16,384 tokens there."""

_BITS = {"fp8": 8, "mxfp4": 4, "compressed-tensors": 8, "awq": 4, "gptq": 4, "bitsandbytes": 4}


class HostNeed(NamedTuple):
    """Bytes of host memory and disk.

    Attributes:
        checkpoint: the model's files.
        sharding: smallest and largest peak of cutting the weights into ranks.
        presharded: peak of loading weights that were cut before.
        compiler: one compiler.
        disk: checkpoint, sharded weights and programs together.
        ram: memory of the named instance, None without one.
        jobs: compilers that fit side by side; None without an instance.
    """

    checkpoint: int
    sharding: tuple[int, int]
    presharded: int
    compiler: int
    disk: int
    ram: int | None
    jobs: int | None

    @property
    def shards_here(self) -> bool | None:
        """Whether cutting fits the instance: None without one, or where only luck decides."""
        if self.ram is None or self.sharding[0] <= self.ram < self.sharding[1]:
            return None
        return self.sharding[1] <= self.ram


def checkpoint_bytes(model: Dimensions, config: Mapping[str, Any]) -> int:
    """Bytes of the checkpoint by its dtype; a quantised one by its method's usual width."""
    method = config.get("quantization_config")
    bits = _BITS.get(str(method.get("quant_method"))) if isinstance(method, Mapping) else None
    if bits is not None:
        return model.parameters * bits // 8
    return model.parameters * BYTES.get(_dtype(config), 2)


def host_need(
    model: Dimensions,
    config: Mapping[str, Any],
    neuron: Mapping[str, Any],
    *,
    rank_bytes: int,
    ranks: int,
    platform: str,
    ram: int | None,
    on_disk: int | None = None,
) -> HostNeed:
    """Host memory and disk for one program.

    Args:
        config: config.json, for the checkpoint's dtype.
        rank_bytes: weights of one rank, as compiled.
        ranks: ranks that are cut, tp_degree x pp_degree x ep_degree.
        ram: memory of the host in bytes.
        on_disk: size of the checkpoint's files where it is known.
    """
    checkpoint = on_disk or checkpoint_bytes(model, config)
    compiled = neuron.get("torch_dtype") or "bfloat16"
    quantised = isinstance(config.get("quantization_config"), Mapping)
    converted = 0
    if neuron.get("quantized"):
        converted = 0 if quantised else model.parameters
    elif quantised or _dtype(config) != compiled:
        converted = model.parameters * BYTES[compiled]
    low = checkpoint + converted + rank_bytes + PROCESS
    compiler = compiler_bytes(model, neuron, platform)
    return HostNeed(
        checkpoint=checkpoint,
        sharding=(low, low * 3 // 2),
        presharded=2 * GB,
        compiler=compiler,
        disk=checkpoint + ranks * rank_bytes + 2 * GB,
        ram=ram,
        jobs=None if ram is None else max(1, ram // compiler),
    )


def compiler_bytes(model: Dimensions, neuron: Mapping[str, Any], platform: str) -> int:
    """Bytes that one neuronx-cc is expected to hold at its peak."""
    if platform not in ("trn2", "trn3"):
        return SMALL
    if (neuron.get("max_context_length") or neuron.get("seq_len") or 1) >= 16384:
        return LONG
    tp = neuron.get("tp_degree") or 1
    return LARGE if model.parameters // tp > 10**9 else SMALL


def _dtype(config: Mapping[str, Any]) -> str:
    text = config.get("text_config")
    for place in (config, text if isinstance(text, Mapping) else {}):
        for name in ("dtype", "torch_dtype"):
            if isinstance(place.get(name), str):
                return str(place[name]).removeprefix("torch.")
    return "bfloat16"
