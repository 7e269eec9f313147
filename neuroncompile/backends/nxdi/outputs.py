"""Whether a compile left what a program needs: exit status is not trusted.

Checked: a program file for each part, readable as the zip that TorchScript is, and without a NEFF
that this compile did not make; for every graph and bucket a NEFF that is whole, for the target and
the logical cores that were asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.errors import CompileError, CorruptArtifactError, ModelError
from neuroncompile.hardware.embedded import neffs_in
from neuroncompile.hardware.neff import Neff, read_neff
from neuroncompile.models.header import read_header

__all__ = ["MODEL", "Checked", "check_outputs", "check_shards", "shard_titles"]

MODEL = "model.pt"
SHARD = "weights/tp{rank}_sharded_checkpoint.safetensors"


class Checked(NamedTuple):
    """What was found.

    Attributes:
        models: program files, relative to the output directory.
        graphs: as given, each with "neff": SHA-256, size, program digest, compiler, LNC, targets.
    """

    models: tuple[str, ...]
    graphs: tuple[dict[str, Any], ...]


def check_outputs(
    out: Path, work: Path, graphs: Sequence[Mapping[str, Any]], target: Mapping[str, Any]
) -> Checked:
    """Look at every output of one compile.

    Args:
        out: where NxDI wrote the program.
        work: its tree of graphs.
        graphs: those that were to be compiled: program, submodel, index, batch, bucket.
        target: "platform" and "lnc" of the spec.

    Raises:
        CompileError: naming what is missing or wrong, with all that is.
    """
    wrong: list[str] = []
    places = sorted({str(graph.get("program", "")) for graph in graphs})
    models = [f"{place}/{MODEL}" if place else MODEL for place in places]
    made = _made(work)
    for title in models:
        reason = _model(out / title, {neff.program for neff in made.values()})
        if reason:
            wrong.append(f"{title} {reason}")
    checked, suspects = [], []
    for graph in graphs:
        path = _neff_path(work, graph)
        name = f"{graph['submodel']} at bucket {graph['bucket']}"
        try:
            neff = made.get(path) or read_neff(path)
            reason = _unfit(neff, target)
        except CorruptArtifactError as error:
            reason = f": {error.details['why']}"
        if reason:
            wrong.append(name + reason)
            suspects.append([graph.get("program", ""), graph["submodel"], graph["index"]])
            continue
        known = {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "size": neff.size,
            "program": neff.program,
            "compiler": neff.compiler,
            "lnc": neff.lnc,
            "targets": list(neff.targets),
        }
        kept = ("program", "submodel", "index", "batch", "bucket", "flags")
        checked.append({**{k: graph[k] for k in kept if k in graph}, "neff": known})
    if not graphs:
        wrong.append("no graph at all")
    if wrong:
        raise _incomplete(wrong, suspects)
    return Checked(tuple(models), tuple(checked))


def _unfit(neff: Neff, target: Mapping[str, Any]) -> str | None:
    if neff.targets and target["platform"] not in neff.targets:
        return f" is for {' or '.join(neff.targets)}, not {target['platform']}"
    lnc = target.get("lnc") or 1
    return f" has LNC {neff.lnc}, not {lnc}" if neff.lnc and neff.lnc != lnc else None


def shard_titles(config: Mapping[str, Any], places: Sequence[str] = ("",)) -> list[str]:
    """Names of the weight files of every rank that this config cuts.

    Args:
        config: neuron config as constructed: start_rank_id, local_ranks_size.
        places: sub-directories of the programs.
    """
    first, count = config["start_rank_id"], config["local_ranks_size"]
    names = [SHARD.format(rank=rank) for rank in range(first, first + count)]
    return [f"{place}/{name}" if place else name for place in places for name in names]


def check_shards(out: Path, titles: Sequence[str]) -> None:
    """Every rank's file is there and reads as safetensors.

    Raises:
        CompileError: naming those that are not.
    """
    wrong = []
    for title in titles:
        path = out / title
        if not path.is_file():
            wrong.append(f"{title} is missing")
            continue
        try:
            read_header(path)
        except ModelError as error:
            wrong.append(f"{title}: {error}")
    if wrong:
        raise _incomplete(wrong)


def _neff_path(work: Path, graph: Mapping[str, Any]) -> Path:
    place = work / graph["program"] if graph.get("program") else work
    found: Path = place / graph["submodel"] / f"_tp0_bk{graph['index']}" / "graph.neff"
    return found


def _made(work: Path) -> dict[Path, Neff]:
    """All that was compiled and is whole, the transformer of weight layouts included."""
    found = {}
    for path in work.rglob("*.neff"):
        with contextlib.suppress(CorruptArtifactError):  # told where a graph is looked at
            found[path] = read_neff(path)
    return found


def _model(path: Path, made: Collection[str]) -> str | None:
    """What is wrong with a program file; reading all of it compares its checksums, too.

    That no NEFF is found in it is no fault: how they are laid there is the vendor's to change.
    """
    if not path.is_file():
        return "is missing"
    if not path.stat().st_size:
        return "is empty"
    try:
        strange = [found for found in neffs_in(path) if found.neff.program not in made]
    except CorruptArtifactError as error:
        return f"is not a whole TorchScript file: {error.details['why']}"
    if not strange:
        return None
    at = f"{strange[0].member} at {strange[0].offset}"
    return f"holds a NEFF that was not made by this compile ({at})"


def _incomplete(wrong: Sequence[str], suspects: Sequence[Any] = ()) -> CompileError:
    return CompileError(
        f"the compiler reported success and left an incomplete program: {wrong[0]}"
        + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""),
        hint="the same command compiles what is missing; what is whole comes from the cache",
        details={
            "wrong": list(wrong),
            "suspects": list(suspects),
            "how": "incomplete output",
            "deterministic": False,
        },
    )
