"""An interpreter of its own with the stand-ins for a Neuron SDK, and a hand on its compiler."""

from __future__ import annotations

import json
import os
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SDK = Path(__file__).with_name("neuron_sdk")
VERSIONS = {
    "neuronx-cc": "2.24.8799.0+6f62ff7c",
    "neuronx-distributed-inference": "0.9.17334",
    "neuronx-distributed": "0.18.27753",
    "torch": "2.9.1",
    "torch-xla": "2.9.0",
    "torch-neuronx": "2.9.0.2.13.26312",
    "libneuronxla": "2.2.16408.0",
    "transformers": "4.57.6",
    "nki": "0.3.0",
}
"""Of SDK 2.29. The packages that are not stood in for are named by their metadata alone."""


class StandIn:
    """A toolchain whose compiler counts its calls and fails when told.

    Args:
        directory: where it is made; its place enters no key.
        versions: other versions than those of SDK 2.29.
    """

    def __init__(self, directory: Path, versions: Mapping[str, str] = {}) -> None:
        self.directory = directory
        venv.EnvBuilder(with_pip=False, symlinks=True).create(directory)
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        site = directory / "lib" / name / "site-packages"
        (site / "standins.pth").write_text(f"{SDK}\n")
        for package, version in {**VERSIONS, **versions}.items():
            info = site / f"{package.replace('-', '_')}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
            )
            # an installed wheel with one file, unedited; the stand-ins come by another path
            (info / "RECORD").write_text(f"{info.name}/METADATA,,\n")
        compiler = directory / "bin" / "neuronx-cc"
        text = (SDK / "bin" / "neuronx-cc").read_text()
        compiler.write_text(f"#!{self.python}\n{text}")
        compiler.chmod(0o755)
        self.file = directory / "toolchain.toml"
        rows = "".join(f'{k} = "{v}"\n' for k, v in {**VERSIONS, **versions}.items())
        self.file.write_text(
            f'schema = 1\nname = "stand-in"\nbackend = "nxdi"\npython = "{self.python}"\n'
            f"[packages]\n{rows}"
        )

    @property
    def python(self) -> str:
        """The interpreter."""
        return str(self.directory / "bin" / "python")

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Every call of the compiler: graph, flags, time."""
        path = self.directory / "state" / "calls.jsonl"
        return [json.loads(row) for row in path.read_text().splitlines()] if path.exists() else []

    def called(self) -> list[tuple[str, Any]]:
        """(submodel, bucket) of every call."""
        return [(call["graph"]["submodel"], call["graph"]["bucket"]) for call in self.calls]

    def forget(self) -> None:
        """Count from zero again."""
        (self.directory / "state" / "calls.jsonl").unlink(missing_ok=True)

    def rules(self, *rules: Mapping[str, Any]) -> None:
        """What the compiler does from now on; none is: it compiles."""
        state = self.directory / "state"
        state.mkdir(exist_ok=True)
        partial = state / f"rules.{os.getpid()}"
        partial.write_text(json.dumps(list(rules)))
        partial.replace(state / "rules.json")


def fails(lines: Sequence[str], **more: Any) -> dict[str, Any]:
    """A rule: print `lines` and leave with status 70, as neuronx-cc does for everything."""
    return {"mode": "fail", "lines": list(lines), "exit": 70, **more}
