"""The process that holds the vendor's packages: one file, standard library only, Python 3.9.

A toolchain's interpreter runs this file, so it imports nothing of ours, and the vendor's packages
only once an order needs them. Orders come on standard input and answers go to standard output,
each a frame:

    4 bytes   length of the head, big-endian
    4 bytes   length of the body
    head      JSON in UTF-8: {"op": …} one way, {"event": …} the other
    body      raw tensors, one after the other, as "tensors" in the head describes them:
              [{"name": …, "dtype": "int64", "shape": [2, 16]}, …], little-endian, contiguous

Every order is answered by one "done" or "failed"; before it come "stage" and "graph" events.
What the vendor's packages print goes to standard error, whoever prints it.

The environment is complete before this process starts, because target and logical cores are
read when the packages are imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import itertools
import json
import os
import queue
import shutil
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HEAD = struct.Struct(">II")

PACKAGES = (
    "neuronx-cc",
    "neuronx-distributed-inference",
    "neuronx-distributed",
    "torch",
    "torch-xla",
    "torch-neuronx",
    "libneuronxla",
    "transformers",
    "nki",
    "nkilib",
)
"""Distributions whose versions identify a toolchain."""

SOURCES = {
    "neuronx-distributed-inference": "neuronx_distributed_inference",
    "neuronx-distributed": "neuronx_distributed",
    "nkilib": "nkilib",
}
"""Of these, the ones people edit: distribution → package whose files are compared."""


class Refused(Exception):  # noqa: N818 - a refusal, as the parent's OrderFailed says
    """A value that cannot be built; `field`, `value` and `legal` go to the user."""

    def __init__(self, message: str, field: str = "", value: Any = None, legal: Any = None):
        super().__init__(message)
        self.field, self.value, self.legal = field, value, legal


# --- identity


def identity() -> dict[str, str]:
    """Distribution → version, with a digest of the sources where a version does not name them.

    A version stands for a wheel's bytes only while nobody has touched them: an editable or VCS
    install, a directory on the path, and an edited file get `+src.<16 hex digits>`.
    """
    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            distribution: Any = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            distribution = None
        package = SOURCES.get(name)
        if distribution is None and (package is None or _directory(package) is None):
            continue
        version = distribution.version if distribution is not None else _own_version(str(package))
        if package is not None and not _as_released(distribution):
            version += "{}src.{}".format("." if "+" in version else "+", _digest(package))
        found[name] = version
    return found if "neuronx-cc" in found else {}


def _directory(package: str) -> Path | None:
    """Where a package lies, without importing it."""
    for entry in sys.path:
        place = Path(entry or ".", package)
        if (place / "__init__.py").is_file():
            return place
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) if places else None


def _own_version(package: str) -> str:
    """What a package says of itself where no metadata does."""
    place = _directory(package)
    with contextlib.suppress(OSError):
        for line in (place or Path()).joinpath("_version.py").read_text("utf-8").splitlines():
            if line.startswith("__version__"):
                return line.partition("=")[2].strip().strip("\"'")
    return "0"


def _as_released(distribution: Any) -> bool:
    """Whether every Python file is still the one its wheel brought."""
    if distribution is None or distribution.read_text("direct_url.json"):
        return False
    for file in distribution.files or ():
        if file.suffix != ".py":
            continue
        try:
            data = Path(file.locate()).read_bytes()
        except OSError:
            return False
        if file.hash is not None and file.hash.mode == "sha256":
            import base64

            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
            if digest.decode() != file.hash.value:
                return False
    return bool(distribution.files)


def _digest(package: str) -> str:
    whole = hashlib.sha256()
    root = _directory(package)
    for file in sorted((root or Path()).rglob("*.py")):
        name = file.relative_to(root or Path()).as_posix()
        whole.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()[:16]


# --- configuration


def load_class(reference: str) -> Any:
    """The class behind "module:Class" or "/path/to/source:Class"."""
    place, _, name = reference.rpartition(":")
    if not place.startswith("/"):
        return getattr(importlib.import_module(place), name)
    source = Path(place)
    file = source if source.is_file() else source / "__init__.py"
    if not file.is_file():  # a package directory without one: the file that defines the class
        file = next(
            path for path in sorted(source.rglob("*.py")) if "class " + name in path.read_text()
        )
    sys.path.insert(0, str(source.parent))
    spec = importlib.util.spec_from_file_location(source.stem, str(file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[source.stem] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def construct(order: dict[str, Any]) -> tuple[Any, Any]:
    """The model's class and its InferenceConfig, every asked keyword checked.

    Args:
        order: "class", "model" (directory with config.json), "neuron" (keywords), and "draft"
            with the same three for fused speculation.
    """
    cls = load_class(order["class"])
    config = _inference_config(cls, order["model"], order["neuron"])
    draft = order.get("draft")
    if draft:
        own = load_class(draft.get("class") or order["class"])
        parts = importlib.import_module("neuronx_distributed_inference.models.config")
        more = {} if own is cls else {"draft_model_cls": own}
        config.fused_spec_config = parts.FusedSpecNeuronConfig(
            cls._model_cls,
            draft_config=_inference_config(own, draft["model"], draft["neuron"]),
            draft_model_path=draft["model"],
            **more,
        )
    return cls, config


def _inference_config(cls: Any, model: str, neuron: dict[str, Any]) -> Any:
    adapter = importlib.import_module("neuronx_distributed_inference.utils.hf_adapter")
    config_cls, neuron_cls = cls.get_config_cls(), cls.get_neuron_config_cls()
    load = adapter.load_pretrained_config(model)
    asked = dict(neuron)
    vision: Any = asked.pop("vision_neuron_config", None)
    text = asked.pop("text_neuron_config", None) or {}
    if vision is None:
        config = config_cls(neuron_cls(**_deep(asked)), load_config=load)
        compare(asked, config.neuron_config)
        return config
    texts = _merged(asked, text)
    shared = ("tp_degree", "world_size", "torch_dtype", "logical_nc_config", "batch_size")
    visions = {**{name: asked[name] for name in shared if name in asked}, **vision}
    config = config_cls(
        text_neuron_config=neuron_cls(**_deep(texts)),
        vision_neuron_config=neuron_cls(**_deep(visions)),
        load_config=load,
    )
    compare(texts, config.text_config.neuron_config)
    compare(visions, config.vision_config.neuron_config, "vision_neuron_config.")
    return config


def _deep(value: Any) -> Any:
    """A copy: the vendor's classes sort and pop what they are given."""
    return json.loads(json.dumps(value))


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for name, value in over.items():
        old = result.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            value = _merged(old, value)
        result[name] = value
    return result


def compare(asked: dict[str, Any], actual: Any, prefix: str = "") -> None:
    """Refuse a config that is not the one asked for: a keyword dropped, or a value changed."""
    for name, value in asked.items():
        held = actual.get(name, _MISSING) if isinstance(actual, dict) else _held(actual, name)
        if held is _MISSING:
            raise Refused(
                f"{prefix + name} is not a keyword of {_title(actual)}, which drops it",
                prefix + name,
                value,
                "leave it out, or take an NxDI that knows it",
            )
        if isinstance(value, dict) and held is not None and not _is_plain(held):
            compare(value, held, prefix + name + ".")
        elif plain(held) != plain(value):
            raise Refused(
                f"{prefix + name} was asked as {value!r}, and {_title(actual)} makes it "
                f"{plain(held)!r}",
                prefix + name,
                value,
                plain(held),
            )


_MISSING: Any = object()


def _held(actual: Any, name: str) -> Any:
    return getattr(actual, name, _MISSING)


def _title(actual: Any) -> str:
    return "NxDI's " + type(actual).__name__


def _is_plain(value: Any) -> bool:
    return isinstance(value, (dict, list, tuple, str, int, float, bool)) and not (
        isinstance(value, dict) and value
    )


def plain(value: Any) -> Any:
    """A value as JSON has it: dtypes and enums by name, tuples as lists."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in (sorted(value) if isinstance(value, set) else value)]
    text = str(value)
    if text.startswith("torch."):
        return text[len("torch.") :]
    inner = getattr(value, "value", None)  # an enum
    return plain(inner) if isinstance(inner, (str, int)) else text


def programs(app: Any) -> list[tuple[str, list[Any]]]:
    """Sub-directory → wrappers: one program, or two for image-to-text families."""
    if getattr(app, "vision_models", None) and hasattr(app, "text_models"):
        return [("text_model", list(app.text_models)), ("vision_model", list(app.vision_models))]
    return [("", list(app.models))]


def graphs_of(app: Any) -> list[dict[str, Any]]:
    """Every graph that the application will have compiled, in the vendor's order of buckets."""
    found = []
    for place, wrappers in programs(app):
        for wrapper in wrappers:
            neuron = wrapper.config.neuron_config
            for index, bucket in enumerate(neuron.buckets):
                pair = isinstance(bucket, (list, tuple))
                found.append(
                    {
                        "program": place,
                        "submodel": wrapper.tag,
                        "index": index,
                        "batch": int(bucket[0]) if pair else int(neuron.batch_size),
                        "bucket": list(bucket) if pair else int(bucket),
                        "flags": str(wrapper.compiler_args),
                    }
                )
    return found


def application(order: dict[str, Any]) -> tuple[Any, Any]:
    """The application and its config, as `compile` and `load` use them."""
    cls, config = construct(order)
    app = cls(order["model"], config)
    level = order.get("optlevel")
    for _, wrappers in programs(app):
        for wrapper in wrappers:
            wrapper.compiler_args = compiler_args(str(wrapper.compiler_args), level, order)
    return app, config


def compiler_args(flags: str, level: str | None, order: dict[str, Any]) -> str:
    """A submodel's flags with `-O` as asked and one log file for all of the family's graphs.

    Without `--logfile` NxD adds one below the graph's own directory, whose number changes when a
    bucket is added in front, and the flags are part of the vendor's cache key.
    """
    import re

    if level is not None:
        flags = re.sub(r"(?<!\S)-O\d(?!\S)", "", flags) + " -O" + level
    if "--logfile" not in flags and order.get("log"):
        flags += " --logfile=" + order["log"]
    return flags


def configure(order: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Construct and tell: the config's JSON, and the graphs with their flags."""
    app, config = application(order)
    return {"config": config.to_json_string(), "graphs": graphs_of(app)}


# --- compiling


class Watch:
    """Stands between NxD and libneuronxla: tells of each graph, limits how many compile at once,
    and asks the parent what to do when one fails.

    NxD starts all compilers together and gives up at the first failure; a graph that is compiled
    again here is compiled alone, and none of the finished ones is lost.
    """

    def __init__(self, channel: Channel, order: dict[str, Any], graphs: list[dict[str, Any]]):
        self.channel, self.work, self.log = channel, Path(order["work"]), str(order["log"])
        self.graphs = {(g["program"], g["submodel"], g["index"]): g for g in graphs}
        self.jobs = max(1, int(order.get("jobs") or 1))
        self.fresh = order.get("fresh") or []  # graphs whose last result was no good
        self.running = 0
        self.alone = False
        self.turn = threading.Condition()

    def install(self) -> None:
        builder = importlib.import_module("neuronx_distributed.trace.model_builder")
        for name in ("neuron_xla_compile", "neuron_xla_wlo_compile"):
            original = getattr(builder, name, None)
            if callable(original):
                setattr(builder, name, self._wrapped(original))

    def _wrapped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_graph(*args: Any, **kwargs: Any) -> Any:
            graph = self._graph(str(kwargs.get("work_dir", "")))
            args = self._with_own_log(args, kwargs, graph)
            entries = Entries(str(kwargs.get("cache_key", "")))
            if [graph.get("program"), graph["submodel"], graph["index"]] in self.fresh:
                entries.drop()
            kwargs["retry_failed_compilation"] = True  # a failure is remembered by us, with reason
            alone = False
            for attempt in itertools.count(1):
                with self._slot(alone):
                    began, cached = time.monotonic(), entries.complete()
                    self.channel.send({"event": "graph", "state": "start", **graph})
                    try:
                        result = original(*args, **kwargs)
                        check_neff(result[0] if isinstance(result, tuple) else result)
                    except TypeError:
                        raise  # NxD calls again without the argument an older release lacks
                    except Exception as error:
                        failure, text = error, describe(error)
                        entries.drop()
                    else:
                        state = "reused" if cached else "done"
                        seconds = time.monotonic() - began
                        self.channel.send(
                            {"event": "graph", "state": state, "seconds": seconds, **graph}
                        )
                        return result
                question = {"event": "graph", "state": "failed", "text": text, "attempt": attempt}
                answer = self.channel.ask(
                    {**question, "seconds": time.monotonic() - began, **graph}
                )
                if not answer.get("again"):
                    raise failure
                alone = bool(answer.get("alone"))
            return None  # never reached: the loop has no end of its own

        return compile_graph

    def _with_own_log(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], graph: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Give a graph a log of its own, whose name does not change when buckets are added."""
        shared = "--logfile=" + self.log
        name = "-".join(
            str(part)
            for part in (
                graph.get("program"),
                graph["submodel"],
                graph.get("batch"),
                graph["bucket"],
            )
            if part not in ("", None)
        )
        own = "--logfile=" + str(Path(self.log).with_name(name.replace("/", "-") + ".txt"))
        if isinstance(kwargs.get("compiler_flags"), str):
            kwargs["compiler_flags"] = kwargs["compiler_flags"].replace(shared, own)
        return tuple(a.replace(shared, own) if isinstance(a, str) else a for a in args)

    def _graph(self, work_dir: str) -> dict[str, Any]:
        try:
            parts = Path(work_dir).relative_to(self.work.resolve()).parts
        except ValueError:
            try:
                parts = Path(work_dir).relative_to(self.work).parts
            except ValueError:
                return {"submodel": Path(work_dir).name or "graph", "index": 0, "bucket": 0}
        place = parts[0] if parts and parts[0] in ("text_model", "vision_model") else ""
        rest = parts[1:] if place else parts
        index = int(rest[1].rpartition("bk")[2]) if len(rest) > 1 else 0
        graph = self.graphs.get((place, rest[0] if rest else "", index))
        if graph is None:
            return {"submodel": "/".join(rest) or "graph", "index": index, "bucket": 0}
        kept = ("program", "submodel", "index", "batch", "bucket")
        return {name: graph[name] for name in kept}

    @contextlib.contextmanager
    def _slot(self, alone: bool) -> Iterator[None]:
        with self.turn:
            if alone:
                self.turn.wait_for(lambda: not self.running and not self.alone)
                self.alone, self.jobs = True, 1
            else:
                self.turn.wait_for(lambda: self.running < self.jobs and not self.alone)
            self.running += 1
        try:
            yield
        finally:
            with self.turn:
                self.running -= 1
                self.alone = False
                self.turn.notify_all()


class Entries:
    """A graph's entries in the vendor's cache, neuronxcc-<version>/MODULE_<key>+<flags>/.

    An entry with a log and no NEFF answers every later call with "cached failed neff", and a NEFF
    that is cut short would be served for ever; both are removed as soon as they are seen.
    """

    def __init__(self, key: str) -> None:
        self.key, self.root = key, os.environ.get("NEURON_COMPILE_CACHE_URL", "")

    def _found(self) -> list[Path]:
        if not self.key or not os.path.isdir(self.root):
            return []
        return [p for p in Path(self.root).glob(f"*/MODULE_{self.key}*") if p.is_dir()]

    def complete(self) -> bool:
        """Whether a finished one is there."""
        return any((entry / "model.done").exists() for entry in self._found())

    def drop(self) -> None:
        """Remove them."""
        for entry in self._found():
            shutil.rmtree(entry, ignore_errors=True)


def check_neff(data: Any) -> None:
    """Whether a NEFF is as long as its header says; its members are looked at by the parent."""
    if not isinstance(data, (bytes, bytearray)) or len(data) < 1024:
        raise RuntimeError("neuronx-cc reported success and left no NEFF")
    header, size = struct.unpack_from("<QQ", data, 8)
    if header == 1024 and size > len(data) - 1024:
        raise RuntimeError(
            f"neuronx-cc reported success and left a truncated NEFF: {len(data) - 1024} of {size} "
            "bytes"
        )


def describe(error: BaseException) -> str:
    """An exception as text, with what it was raised from."""
    return "".join(traceback.format_exception_only(type(error), error))


def compile_program(order: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Trace and compile into "out"; weights are neither read nor written."""
    import inspect

    for name in ("work", "out"):
        Path(order[name]).mkdir(parents=True, exist_ok=True)
    channel.send({"event": "stage", "name": "importing"})
    app, config = application(_unsharded(order))
    graphs = graphs_of(app)
    channel.send({"event": "stage", "name": "tracing", "graphs": graphs})
    Watch(channel, order, graphs).install()
    more: dict[str, Any] = {}
    if "disable_fail_fast" in inspect.signature(app.compile).parameters:
        more["disable_fail_fast"] = True  # the others finish, and are in the vendor's cache
    app.compile(order["out"], debug=_debug(), **more)
    return {"config": config.to_json_string(), "graphs": graphs}


def _unsharded(order: dict[str, Any]) -> dict[str, Any]:
    """Sharding is an order of its own: its result has another key."""
    neuron = dict(order["neuron"])
    neuron.pop("save_sharded_checkpoint", None)
    neuron.pop("skip_sharding", None)
    return {**order, "neuron": neuron}


def _debug() -> Any:
    """The least metadata that this NxD can be asked for: names of source files change an HLO."""
    builder = importlib.import_module("neuronx_distributed.trace.model_builder")
    return "none" if hasattr(builder, "HloMetadataLevel") else False


def shard(order: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Write `weights/tp{rank}_sharded_checkpoint.safetensors` of "model" into "out"."""
    channel.send({"event": "stage", "name": "importing"})
    more = {"save_sharded_checkpoint": True, "skip_sharding": False}
    app, config = application({**order, "neuron": {**order["neuron"], **more}})
    out = os.path.join(order["out"], "")
    channel.send({"event": "stage", "name": "sharding"})
    if hasattr(app, "shard_text_weights"):
        calls = {"text_model": app.shard_text_weights, "vision_model": app.shard_vision_weights}
    else:
        calls = {"": app.shard_weights}
    for place, call in calls.items():
        os.makedirs(out + place, exist_ok=True)
        call(os.path.join(out, place, ""))
    held = ("start_rank_id", "local_ranks_size")
    ranks = {name: plain(getattr(config.neuron_config, name)) for name in held}
    return {"files": _files(Path(order["out"])), "places": list(calls), "ranks": ranks}


def quantize(order: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Write the quantised checkpoint of "model" into the directory "out"."""
    channel.send({"event": "stage", "name": "importing"})
    cls, config = construct(order)
    os.makedirs(order["out"], exist_ok=True)
    config.neuron_config.quantized_checkpoints_path = order["out"]
    channel.send({"event": "stage", "name": "quantizing"})
    cls.save_quantized_state_dict(order["model"], config)
    return {"files": _files(Path(order["out"]))}


def _files(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


# --- running


class Loaded:
    """One application with its weights, on a device or (`cpu`) on the host."""

    def __init__(self, order: dict[str, Any]):
        neuron = dict(order["neuron"])
        if order.get("cpu"):
            os.environ["NXD_CPU_MODE"] = "1"
            neuron["on_cpu"] = True
        neuron["save_sharded_checkpoint"] = bool(order.get("sharded"))
        neuron.pop("skip_sharding", None)
        self.cls, self.config = construct({**order, "neuron": neuron})
        place_weights(self.config, order)
        self.app = self.cls(order["model"], self.config)
        if order.get("cpu"):
            self.app.to_cpu()
        else:
            self.app.load(os.path.join(order["view"], ""))
        encodes = [g for g in graphs_of(self.app) if g["submodel"] == "context_encoding_model"]
        buckets = [g["bucket"] for g in encodes if isinstance(g["bucket"], int)]
        self.smallest = max(2, min(buckets, default=2))

    def limits(self) -> dict[str, Any]:
        """What a caller must keep to."""
        neuron = self.config.neuron_config
        text = getattr(self.config, "text_config", None) or self.config
        sampling = neuron.on_device_sampling_config
        return {
            "batch_size": int(getattr(neuron, "max_batch_size", 0) or neuron.batch_size),
            "seq_len": int(neuron.seq_len),
            "max_context_length": int(neuron.max_context_length),
            "vocab_size": int(getattr(text, "vocab_size", 0) or text["vocab_size"]),
            "samples": sampling is not None,
        }

    def forward(self, head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """One step of rows in the order of their slots.

        Context encoding goes row by row and without padding: NxDI takes the row's last token by
        its largest position, which padding would move. In token generation the mask is left to
        NxDI, which lets a row see its earlier positions alone.
        """
        import torch

        given = unpack(head["tensors"], body)
        ids, positions = given["input_ids"], given["position_ids"]
        rows = torch.as_tensor(given["seq_ids"])
        params = given.get("sampling_params")
        with torch.no_grad():
            if int(positions[:, 0].max()) > 0:
                outs = [self._call(ids, positions, rows, params)]
            else:
                outs = []
                for row in range(ids.shape[0]):
                    count = int((positions[row] >= 0).sum())
                    one = slice(row, row + 1)
                    chosen = None if params is None else params[one]
                    outs.append(
                        self._call(ids[one, :count], positions[one, :count], rows[one], chosen)
                    )
        result = torch.cat(outs).contiguous()
        dtype = "int64" if result.dtype == torch.int64 else "float32"
        shape = {"name": "out", "dtype": dtype, "shape": list(result.shape)}
        return {"tensors": [shape]}, result.numpy().tobytes()

    def _call(self, ids: Any, positions: Any, rows: Any, params: Any) -> Any:
        import torch

        mask = torch.ones_like(ids) if int(positions.min()) == 0 else None
        if mask is not None and ids.shape[1] == 1:
            # NxDI pads positions with 1 and takes the token at the largest one: of a prompt of one
            # token that would be the first of the padding. So its bucket is filled here, with 0.
            more_of_it = (0, self.smallest - 1)
            ids = torch.nn.functional.pad(ids, more_of_it)
            positions = torch.nn.functional.pad(positions, more_of_it)
            mask = torch.nn.functional.pad(mask, more_of_it)
        out = self.app(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            seq_ids=rows,
            sampling_params=params,
        )
        if self.config.neuron_config.on_device_sampling_config is not None:
            return out.tokens.reshape(ids.shape[0], -1)[:, -1].to(torch.int64)
        return out.logits.reshape(ids.shape[0], -1, out.logits.shape[-1])[:, -1].float()


def place_weights(config: Any, order: dict[str, Any]) -> None:
    """Point every path at what was asked for: `_name_or_path` is read before any argument."""
    parts = [config, getattr(config, "text_config", None), getattr(config, "vision_config", None)]
    for part in parts:
        if part is not None and hasattr(part, "neuron_config"):
            part._name_or_path = order["model"]
            if order.get("quantized"):
                part.neuron_config.quantized_checkpoints_path = order["quantized"]


def load(order: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Load a program; orders to run it follow."""
    channel.send({"event": "stage", "name": "importing"})
    loaded = channel.loaded = Loaded(order)
    return loaded.limits()


_WIDTHS = {"int64": 8, "int32": 4, "float32": 4}


def unpack(tensors: list[dict[str, Any]], body: bytes) -> dict[str, Any]:
    """Tensors of a frame's body, by name."""
    import torch

    found, at = {}, 0
    for row in tensors:
        count = 1
        for size in row["shape"]:
            count *= size
        end = at + count * _WIDTHS[row["dtype"]]
        flat = torch.frombuffer(bytearray(body[at:end]), dtype=getattr(torch, row["dtype"]))
        found[row["name"]], at = flat.reshape(row["shape"]), end
    return found


# --- the pipe


class Channel:
    """Frames over two descriptors; questions may be asked from any thread."""

    def __init__(self, incoming: int, outgoing: int):
        self.incoming, self.outgoing = os.fdopen(incoming, "rb"), os.fdopen(outgoing, "wb")
        self.writing = threading.Lock()
        self.waiting: dict[int, queue.Queue[dict[str, Any]]] = {}
        self.busy = False
        self.loaded: Any = None
        self.orders: queue.Queue[tuple[dict[str, Any], bytes] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        data = json.dumps(head).encode()
        with self.writing:
            self.outgoing.write(HEAD.pack(len(data), len(body)) + data + body)
            self.outgoing.flush()

    def ask(self, head: dict[str, Any]) -> dict[str, Any]:
        """Send a question and wait for its answer."""
        answers: queue.Queue[dict[str, Any]] = queue.Queue()
        with self.writing:
            number = len(self.waiting) + 1
            self.waiting[number] = answers
        self.send({**head, "question": number})
        return answers.get()

    def _read(self) -> None:
        while True:
            frame = read_frame(self.incoming)
            if frame is None:
                if self.busy and os.getpgrp() == os.getpid():  # the parent died: so do compilers
                    os.killpg(os.getpid(), signal.SIGKILL)
                self.orders.put(None)
                return
            head, body = frame
            if "answer" in head:
                self.waiting[head["answer"]].put(head)
            else:
                self.orders.put((head, body))


def read_frame(stream: Any) -> tuple[dict[str, Any], bytes] | None:
    """The next frame, or None at the end."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    length, size = HEAD.unpack(head)
    return json.loads(stream.read(length)), stream.read(size) if size else b""


OPERATIONS: dict[str, Callable[[dict[str, Any], Channel], dict[str, Any]]] = {
    "identity": lambda order, channel: {"packages": identity()},
    "configure": configure,
    "compile": compile_program,
    "shard": shard,
    "quantize": quantize,
    "load": load,
}


def main() -> None:
    """Serve orders until the pipe closes."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    outgoing = os.dup(1)
    os.dup2(2, 1)
    channel = Channel(0, outgoing)
    while True:
        frame = channel.orders.get()
        if frame is None:
            return
        head, body = frame
        channel.busy, data = True, b""
        try:
            if head["op"] == "forward":
                result, data = channel.loaded.forward(head, body)
            else:
                result = OPERATIONS[head["op"]](head, channel)
        except BaseException as error:
            traceback.print_exc()
            channel.send(
                {
                    "event": "failed",
                    "type": type(error).__name__,
                    "message": str(error),
                    "refused": isinstance(error, Refused),
                    "field": getattr(error, "field", ""),
                    "value": plain(getattr(error, "value", None)),
                    "legal": plain(getattr(error, "legal", None)),
                    "trace": traceback.format_exc()[-4000:],
                }
            )
        else:
            channel.send({"event": "done", "result": result}, data)
        finally:
            channel.busy = False


if __name__ == "__main__":
    main()
