"""A Neuron program brought onto a device: what is checked first, and what the worker is told."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from neuroncompile.backends.nxdi.backend import NxdiBackend
from neuroncompile.backends.nxdi.compile import with_quantised
from neuroncompile.backends.nxdi.engine import NxdiEngine
from neuroncompile.backends.nxdi.inference_config import for_model
from neuroncompile.backends.nxdi.model_directory import lay_out
from neuroncompile.backends.nxdi.process import Worker, identity_of
from neuroncompile.backends.nxdi.surroundings import runtime_environment
from neuroncompile.errors import RunError, ToolchainError
from neuroncompile.hardware.cores import core_text, reserve_cores
from neuroncompile.hardware.neuron_ls import Device, neuron_devices
from neuroncompile.hardware.numa import cpus_near
from neuroncompile.keys import spec_key
from neuroncompile.output import Output
from neuroncompile.pipeline.plan import Plan
from neuroncompile.pipeline.program import reference_of
from neuroncompile.pipeline.shards import draft_order, quantised_in, shard_spec_of
from neuroncompile.settings import Settings
from neuroncompile.store import Store

__all__ = ["check_device", "check_lnc", "check_runtime", "load_order", "open_engine"]

RUNTIME = (
    "neuronx-distributed-inference",
    "neuronx-distributed",
    "torch",
    "torch-neuronx",
    "transformers",
)
"""Packages whose code runs around a compiled graph; another one's code would feed it otherwise."""


def check_device(platform: str, devices: Path = Path("/dev")) -> None:
    """Whether this host has a Neuron device at all.

    Raises:
        RunError: it has none.
    """
    if any(devices.glob("neuron[0-9]*")):
        return
    raise RunError(
        f"this program is for {platform}, and this host has no Neuron device ({devices}/neuron0)",
        hint="run it on such an instance, `neuroncompile export` it for NxD Inference or vLLM, or "
        "rehearse with --target cpu; neuroncompile doctor says what is missing",
        details={"platform": platform, "devices": []},
    )


def check_runtime(program: Mapping[str, Any], installed: Mapping[str, str]) -> None:
    """Whether the packages here are those that the program was compiled with.

    Args:
        program: its program.json.
        installed: package → version of the interpreter that will run it.

    Raises:
        RunError: naming each package with both versions.
    """
    built = program["toolchain"]
    differ = [
        f"{name} {built[name]} then, {installed.get(name, 'none')} here"
        for name in RUNTIME
        if name in built and built[name] != installed.get(name)
    ]
    if differ:
        raise RunError(
            f"this program was compiled with other versions: {'; '.join(differ)}",
            hint="run it with the toolchain it was built with, or build it with this one",
            details={"built": dict(built), "installed": dict(installed)},
        )


def open_engine(
    plan: Plan,
    view: Path,
    weights: Sequence[Path],
    settings: Settings,
    output: Output,
    store: Store,
    held: ExitStack,
) -> NxdiEngine:
    """Load the program of `plan`; `held` ends what has to end with the engine.

    Raises:
        RunError: other versions than it was compiled with, no cores left, or it cannot be loaded.
    """
    try:
        python = NxdiBackend(plan.target.platform).interpreter(plan.toolchain.python)
    except ToolchainError as error:
        raise RunError(str(error), hint=error.hint, details=error.details) from None
    check_runtime(json.loads((view / "program.json").read_text()), identity_of(python))
    place = Path(tempfile.mkdtemp(prefix="neuroncompile-run-"))
    held.callback(shutil.rmtree, place, ignore_errors=True)
    order = load_order(plan, view, weights, settings, output, store, place, held)
    devices = neuron_devices()
    check_lnc(plan.target.lnc or 1, devices)
    reserved = held.enter_context(reserve_cores(devices, _ranks(plan, view)))
    worker = Worker(
        python,
        environment=runtime_environment(plan.spec, python, reserved.text),
        directory=place,
        log=place / "worker.log",
    )
    nodes, cpus = cpus_near(devices, reserved.cores)
    _bind(worker, nodes, cpus, reserved.text, output)
    return NxdiEngine(worker, order, f"{plan.target.text}, cores {reserved.text}")


def _ranks(plan: Plan, view: Path) -> int:
    """Cores that the program runs on, one a rank, as NxDI constructed it."""
    constructed = json.loads((view / "constructed.json").read_text())
    neuron = constructed.get("text_config", constructed).get("neuron_config") or {}
    return int(neuron.get("local_ranks_size") or plan.config["tp_degree"])


def check_lnc(lnc: int, devices: Sequence[Device]) -> None:
    """Whether the runtime joins cores as the program expects.

    Raises:
        RunError: with both settings.
    """
    here = sorted({device.lnc for device in devices})
    if here and here != [lnc]:
        raise RunError(
            f"this program has LNC {lnc}, and the devices are set to {', '.join(map(str, here))}",
            hint=f"export NEURON_LOGICAL_NC_CONFIG={lnc}, or build it with --lnc {here[0]}",
            details={"program": lnc, "devices": here},
        )


def _bind(
    worker: Worker, nodes: Sequence[int], cpus: Sequence[int], cores: str, output: Output
) -> None:
    """Keep the worker on the CPUs that are near its devices; elsewhere copies cross sockets."""
    usable = sorted(os.sched_getaffinity(0).intersection(cpus))
    if not usable:
        output.note(f"cores {cores}; not bound, since nothing tells which CPUs are near", level=1)
        return
    with contextlib.suppress(OSError):
        os.sched_setaffinity(worker.process.pid, usable)
        near = f"NUMA node{'s' if len(nodes) > 1 else ''} {core_text(nodes)}"
        output.note(f"cores {cores}, bound to {near} (CPUs {core_text(usable)})")


def load_order(
    plan: Plan,
    view: Path,
    weights: Sequence[Path],
    settings: Settings,
    output: Output,
    store: Store,
    place: Path,
    held: ExitStack,
) -> dict[str, Any]:
    """The worker's `load` order, with the directories it names laid out in `place`.

    The program's own directory is made anew: model.pt, shards if the store has them for this
    model, and a neuron_config.json that is written for it.

    Raises:
        RunError: its quantised weights have not been made.
    """
    files = {path.name: path for path in weights}
    model = lay_out(place / "model", plan.model.config, files, plan.model.generation_config)
    packed = quantised_in(plan.spec, plan.model, settings, store)
    if packed is None and plan.config.get("quantized"):
        raise RunError(
            f"this program takes quantised weights, and {settings.store} has none of "
            f"{plan.model.name}",
            hint="build it with --shard, which makes and keeps them; then run it again",
        )
    # only what is quantised reads it
    quantized = place if packed is None else held.enter_context(store.lease(packed))
    draft = draft_order(plan, place / "draft", quantized, settings, output)
    key = spec_key(shard_spec_of(plan.spec, plan.model, settings, draft=plan.draft, packed=packed))
    shards = None if plan.adapters else store.lookup("shard", key)
    program = place / "program"
    program.mkdir()
    for path in view.rglob("model.pt"):
        _link(path, program / path.relative_to(view))
    if shards is not None:
        root = held.enter_context(store.lease(shards))
        for path in root.rglob("*.safetensors"):
            _link(path, program / path.relative_to(root))
    text = for_model(
        json.loads((view / "constructed.json").read_text()),
        path=str(model),
        config=plan.model.config,
        transformers=plan.toolchain.packages.get("transformers", ""),
        sharded=shards is not None,
        quantized=None if packed is None else str(quantized),
        draft=None if draft is None else draft["model"],
        draft_config={} if plan.draft is None else plan.draft.config,
        own_class=plan.custom is not None,
    )
    (program / "neuron_config.json").write_text(text, encoding="utf-8")
    return {
        "class": reference_of(plan),
        "model": str(model),
        "neuron": with_quantised(plan.config.plain(), quantized),
        "draft": draft,
        "view": str(program),
        "sharded": shards is not None,
        "quantized": None if packed is None else str(quantized),
    }


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(source)
