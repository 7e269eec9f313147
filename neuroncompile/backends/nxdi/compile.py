"""One program compiled by the vendor's classes, in a worker that is watched.

fixed directory of the family, locked
  model/config.json   the model as the key has it, in transformers 4's spelling
  work/               NxD's tree of graphs, which it empties when it starts
  out/                what it writes
  logs/               one log a graph
  cwd/                where it runs: it leaves intermediate files there
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.backends.base import File
from neuroncompile.backends.nxdi.inference_config import without_places
from neuroncompile.backends.nxdi.model_directory import lay_out
from neuroncompile.backends.nxdi.outputs import Checked, check_outputs
from neuroncompile.backends.nxdi.process import Limits, Worker
from neuroncompile.backends.nxdi.surroundings import environment, family_of, neff_cache
from neuroncompile.backends.workdir import fixed_directory
from neuroncompile.keys.exclusions import MODEL_EXCLUSIONS, without
from neuroncompile.models.families import NULLABLE
from neuroncompile.models.spelling import older_spelling

__all__ = [
    "Compiled",
    "Order",
    "compile_program",
    "graph_name",
    "model_config",
    "with_quantised",
]

TORCHSCRIPT = "application/vnd.neuroncompile.torchscript.v1"
JSON = "application/json"
TEXT = "text/plain"


class Order(NamedTuple):
    """A program to compile.

    Attributes:
        spec: the compile spec.
        reference: "module:Class", or "/path:Class" of a class of the user's.
        model: config.json of the model.
        neuron: NxDI keywords, those included that no key has.
        draft: "model", "neuron" and "reference" of a draft in the same program.
        python: the toolchain's interpreter.
        weights: file name → safetensors, for the families whose constructor looks into them.
    """

    spec: Mapping[str, Any]
    reference: str
    model: Mapping[str, Any]
    neuron: Mapping[str, Any]
    draft: Mapping[str, Any] | None
    python: str
    weights: Mapping[str, Path] = {}


class Compiled(NamedTuple):
    """What came out.

    Attributes:
        files: layers of the artifact; they lie in the scratch directory.
        peak_memory: bytes that worker and compilers held at most.
    """

    files: tuple[File, ...]
    peak_memory: int


def compile_program(
    order: Order,
    *,
    scratch: Path,
    cache: Path,
    jobs: int,
    limits: Limits,
    on_event: Callable[[Mapping[str, Any]], Mapping[str, Any] | None],
    on_tick: Callable[[float], None],
    keep: Callable[[Path], None] = lambda work: None,
    fresh: Sequence[Any] = (),
    on_wait: Callable[[], None] | None = None,
) -> Compiled:
    """Compile, check, and bring the files to `scratch`.

    Args:
        scratch: directory on the store's file system; the log grows there as `compile.log`.
        cache: our own cache directory; the vendor's cache of graphs lies in it.
        jobs: compilers at once.
        on_event: as `Worker.order`; answers whether a failed graph is compiled again.
        on_wait: called when another build of the same family has the directory.
        fresh: graphs, as `check_outputs` names suspects, that the vendor's cache must not answer.
        keep: called with the tree of graphs when a compile fails, before it is removed.

    Raises:
        OrderFailed, WorkerEnded, OverLimit: as `Worker.order`.
        CompileError: outputs that are not what a program needs.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    graphs = neff_cache(cache)
    graphs.mkdir(parents=True, exist_ok=True)
    with fixed_directory(family_of(order.spec), on_wait) as root:
        for name in ("work", "out", "logs", "cwd"):
            (root / name).mkdir()
        worker = Worker(
            order.python,
            environment=environment(order.spec, order.python, work=root / "work", cache=graphs),
            directory=root / "cwd",
            log=scratch / "compile.log",
            limits=limits,
        )
        for name in ("logs", "work", "out"):
            worker.watch(root / name)
        try:
            result, _ = worker.order(
                {"op": "compile", "jobs": jobs, "fresh": list(fresh), **_places(order, root)},
                on_event=on_event,
                on_tick=on_tick,
            )
            checked = check_outputs(
                root / "out", root / "work", result["graphs"], order.spec["target"]
            )
            files = _collect(order, root, scratch, result, checked)
        except BaseException as error:
            worker.kill()
            _append_logs(root / "logs", scratch / "compile.log")
            if isinstance(error, Exception):  # of an interrupted one there is nothing to tell
                keep(root / "work")
            raise
        finally:
            worker.close()
    return Compiled(files, worker.memory.peak)


def model_config(config: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of a model as a compile may see it: what the key has, and nothing else.

    Two fine-tunes with one key are compiled from equal files. The padding token stands in no
    graph but that of fused speculation; elsewhere it is 0, since some classes' default lies
    beyond a small vocabulary.
    """
    fused = bool(spec["neuron"].get("enable_fused_speculation"))
    kept = _kept(config, fused)
    kept.setdefault("pad_token_id", 0)
    kept["torch_dtype"] = spec["neuron"].get("torch_dtype")  # the program's, not the checkpoint's
    if isinstance(kept.get("text_config"), Mapping):
        kept["text_config"].setdefault("pad_token_id", 0)
    return older_spelling(kept)


def _kept(config: Mapping[str, Any], fused: bool) -> dict[str, Any]:
    found = without(config, MODEL_EXCLUSIONS, fused_speculation=fused)
    found.pop("torch_dtype", None)
    # a null is its class's default, as in the key; some classes keep it as a value otherwise
    found = {n: v for n, v in found.items() if v is not None or n in NULLABLE}
    for name, value in found.items():
        if name.endswith("_config") and isinstance(value, Mapping):
            found[name] = _kept(value, fused)
    return found


def graph_name(graph: Mapping[str, Any]) -> str:
    """For people, unique within a program: "token_generation_model b4 2048"."""
    bucket = graph["bucket"]
    size = "x".join(map(str, bucket)) if isinstance(bucket, Sequence) else str(bucket)
    program = f"{graph['program']} " if graph.get("program") else ""
    batch = f" b{graph['batch']}" if graph.get("batch") else ""
    return f"{program}{graph['submodel']}{batch} {size}"


def _places(order: Order, root: Path) -> dict[str, Any]:
    """The order's members that name files, which are written here."""
    lay_out(root / "model", model_config(order.model, order.spec), order.weights)
    draft = None
    if order.draft is not None:
        lay_out(root / "draft", model_config(order.draft["model"], order.spec))
        draft = {
            "model": str(root / "draft"),
            "neuron": with_quantised(order.draft["neuron"], root / "quantized"),
            "class": order.draft.get("reference"),
        }
    return {
        "class": order.reference,
        "model": str(root / "model"),
        "neuron": with_quantised(order.neuron, root / "quantized"),
        "draft": draft,
        "optlevel": order.spec["optlevel"],
        "work": str(root / "work"),
        "out": str(root / "out"),
        "log": str(root / "logs" / "neuron-cc.txt"),
    }


def with_quantised(neuron: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Keywords with the place of the quantised checkpoint, which NxDI wants even to compile.

    It reads the checkpoint only when weights are cut or loaded.
    """
    found = {n: with_quantised(v, path) if n in _PARTS else v for n, v in neuron.items()}
    return {**found, "quantized_checkpoints_path": str(path)} if found.get("quantized") else found


_PARTS = ("text_neuron_config", "vision_neuron_config")


def _collect(
    order: Order, root: Path, scratch: Path, result: Mapping[str, Any], checked: Checked
) -> tuple[File, ...]:
    _append_logs(root / "logs", scratch / "compile.log")
    constructed = without_places(json.loads(result["config"]))
    program = {
        "schema": 1,
        "backend": "nxdi",
        "class": order.spec["model"].get("class", {}).get("class") or order.reference,
        "target": order.spec["target"],
        "toolchain": order.spec["toolchain"],
        "graphs": list(checked.graphs),
    }
    files = []
    for title, content in (("constructed.json", constructed), ("program.json", program)):
        path = scratch / title
        path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        files.append(File(title, path, JSON))
    for title in checked.models:
        path = scratch / title
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(root / "out" / title, path)
        files.append(File(title, path, TORCHSCRIPT))
    files.append(File("compile.log", scratch / "compile.log", TEXT))
    return tuple(files)


def _append_logs(logs: Path, whole: Path) -> None:
    """Every graph's own log at the end of the program's."""
    with whole.open("ab") as out:
        for path in sorted(logs.glob("*.txt")):
            out.write(f"\n=== {path.name}\n".encode())
            with path.open("rb") as file:
                shutil.copyfileobj(file, out)
