"""One graph spec → one shared object, with every choice that decides its bytes.

Nothing of the host may enter: instruction set and thread count come from the spec and from
constants here, the path from the caller, who keeps it fixed (the object names its sources).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch._inductor
from torch import Tensor, nn
from torch._inductor import config, cpp_builder, cpu_vec_isa
from torch._inductor.codegen import cpp

from neuroncompile.backends.cpu.graphs import DTYPES, Edge, Layer, Whole
from neuroncompile.backends.cpu.headers import use_precompiled_headers

__all__ = ["lower", "signature"]

VECTORS: dict[str, tuple[int, type[cpu_vec_isa.VecISA] | None]] = {
    "x86-64-v2": (0, None),
    "x86-64-v3": (256, cpu_vec_isa.VecAVX2),
    "x86-64-v4": (512, cpu_vec_isa.VecAVX512),
    "armv8-a": (128, cpu_vec_isa.VecNEON),
    "armv8.2-a": (128, cpu_vec_isa.VecNEON),
    "armv8.4-a": (128, cpu_vec_isa.VecNEON),
    "armv9-a": (128, cpu_vec_isa.VecNEON),
}
"""Target level → vector width in bits and Inductor's description of it."""

_PLANNED = cpp.CppKernel.decide_parallel_depth

THREADS = 8
"""What Inductor plans loops for; a host runs them with as many threads as it has."""


def lower(spec: Mapping[str, Any], directory: Path, headers: Path | None = None) -> Path:
    """Export and compile the graph of `spec` inside `directory`; the shared object's path.

    Args:
        spec: a graph spec (`neuroncompile.keys.graph_spec`).
        directory: empty; equal bytes need an equal path.
        headers: where precompiled headers are kept between compiles; None for none.
    """
    module, inputs = build(spec)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(directory / "cache")
    _fix_instruction_set(spec["target"]["isa"])
    torch.set_num_threads(THREADS)
    with torch.no_grad():
        program = torch.export.export(module, inputs, strict=False)
        files = torch._inductor.aot_compile(
            program.module(check_guards=False), inputs, options=_options(spec, directory, headers)
        )
    assert isinstance(files, list)
    (library,) = (Path(f) for f in files if isinstance(f, str) and f.endswith(".so"))
    return library


def build(spec: Mapping[str, Any]) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module of a graph spec and inputs of the shapes it is called with."""
    model, dtype, bucket = spec["model"], DTYPES[spec["dtype"]], spec["bucket"]
    if spec["region"] == "edge":
        return Edge(model, dtype), (torch.zeros(spec["batch"], model["hidden_size"]),)
    encodes = spec["submodel"] == "context_encoding_model"
    whole = spec["region"] == "whole"
    kinds = model["layers"] if whole else [model]
    module: nn.Module = (
        Whole(kinds, model["edge"], bucket, dtype, encodes)
        if whole
        else Layer(model, bucket, dtype)
    )
    return module, _inputs(spec, kinds[0], len(kinds), encodes, whole)


def _inputs(
    spec: Mapping[str, Any], kind: Mapping[str, Any], layers: int, encodes: bool, whole: bool
) -> tuple[Tensor, ...]:
    batch, head_dim = spec["batch"], kind["head_dim"]
    tokens, slots = (spec["bucket"], batch) if encodes else (1, spec["slots"])
    rotary = (batch, tokens, head_dim // 2)
    cache = (slots, kind["num_key_value_heads"], spec["cache_length"], head_dim)
    rows = torch.arange(batch)
    indices = (rows, rows.clone()) if not encodes else (rows,) if whole else ()
    return (
        torch.zeros(batch, tokens, kind["hidden_size"]),
        torch.zeros(rotary),
        torch.zeros(rotary),
        *indices,
        *(torch.zeros(cache) for _ in range(2 * layers)),
    )


def signature(spec: Mapping[str, Any]) -> dict[str, Any]:
    """graph.json: inputs in order and parameters by name, with dtypes and shapes."""
    module, inputs = build(spec)
    return {
        "inputs": [[_dtype(t), list(t.shape)] for t in inputs],
        "parameters": {n: [_dtype(t), list(t.shape)] for n, t in module.state_dict().items()},
    }


def _options(spec: Mapping[str, Any], directory: Path, headers: Path | None) -> dict[str, Any]:
    isa = spec["target"]["isa"]
    return {
        "aot_inductor.output_path": str(directory / "graph"),
        "aot_inductor.package": True,
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.precompile_headers": use_precompiled_headers(headers),
        "aot_inductor.enable_line_tables": False,
        # By itself Inductor names files by a hash of the host's include paths.
        "aot_inductor.model_name_for_generated_files": "graph",
        "cpp.simdlen": VECTORS[isa][0] or 1,
        "cpp.vec_isa_ok": True,
        "cpp.dynamic_threads": True,
        "force_disable_caches": True,
    }


def _fix_instruction_set(isa: str) -> None:
    """Offer Inductor the target's vectors only; by itself it asks the host's processor."""
    vectors = VECTORS[isa][1]
    offered = [] if vectors is None else [vectors()]
    cpu_vec_isa.valid_vec_isa_list = lambda: offered  # type: ignore[assignment]
    flags = [f"march={isa}", f"ffile-prefix-map={os.path.dirname(torch.__file__)}=torch"]
    cpp_builder._get_cpu_arch_cflags = lambda cpp_compiler: flags
    cpp.CppKernel.decide_parallel_depth = _parallel_depth  # type: ignore[method-assign]
    config.compile_threads = 1


def _parallel_depth(kernel: Any, *given: Any) -> Any:
    """Leave small loops to one thread, as Inductor does when it knows the number of threads.

    Told that the number is open, it starts all of them even for 64 additions. A step has
    hundreds of such loops, and on a busy host each waits for the slowest thread to be scheduled.
    """
    with config.patch({"cpp.dynamic_threads": False}):
        return _PLANNED(kernel, *given)  # type: ignore[no-untyped-call]


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
