"""Runs a compiled program: numpy and ctypes, neither torch nor transformers imported.

The host looks up embeddings and rotary tables, calls the graphs in order, and owns the
key-value cache: per layer k and v of [batch_size + 1, key-value heads, seq_len, head size]
float32. The last slot takes what padding rows write.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuroncompile.backends.cpu.aoti import Object, Program, Torch
from neuroncompile.backends.cpu.calls import Cache, Stage
from neuroncompile.backends.cpu.checkpoint import Checkpoint, to_float32
from neuroncompile.backends.cpu.identity import torch_directory, torch_version
from neuroncompile.backends.cpu.program import FORMAT
from neuroncompile.backends.cpu.rope import tables
from neuroncompile.errors import PromptTooLongError, RunError

__all__ = ["CpuEngine", "load"]

REBUILD = "build it with what is installed here: leave --toolchain and --target out"

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


def load(view: Path, weights: Sequence[Path]) -> CpuEngine:
    """Load the program in `view` with the weights in these safetensors files.

    Args:
        view: directory with program.json and graphs/<key>/graph.so, graph.json.
        weights: all shards of the model.

    Raises:
        RunError: the program is for another torch, processor or version of this package.
        ModelError: a tensor is missing or has another shape.
    """
    try:
        program = json.loads((view / "program.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{view} holds no program: {error}", hint=REBUILD) from None
    _check_fits(program)
    return CpuEngine(view, program, weights)


class CpuEngine:
    """A loaded program; see `neuroncompile.runtime` for what an engine promises.

    Attributes:
        batch_size: rows in one token-generation call, and slots.
        seq_len: positions a slot has room for.
        max_context_length: tokens of the longest prompt.
        vocab_size: logits a row.
        name: for people.
    """

    def __init__(self, view: Path, program: Mapping[str, Any], weights: Sequence[Path]) -> None:
        model = program["model"]
        self.name = "cpu"
        self.batch_size = int(program["batch_size"])
        self.vocab_size = int(model["vocab_size"])
        token, context = program["token_generation"], program["context_encoding"]
        self.seq_len = min(int(program["seq_len"]), max(b["bucket"] for b in token))
        self.max_context_length = min(self.seq_len, max(b["bucket"] for b in context))
        self._hidden = int(model["hidden_size"])
        self._torch = Torch(torch_directory(), len(os.sched_getaffinity(0)))
        self._checkpoint = Checkpoint(weights, program["dtype"])
        prefix = "" if "embed_tokens.weight" in self._checkpoint else "model."
        self._names = _Names(prefix, bool(model["tie_word_embeddings"]))
        self._embedding = self._checkpoint.tensor(
            f"{prefix}embed_tokens.weight", (self.vocab_size, self._hidden)
        )
        self._cos, self._sin = tables(model["rope"], model["head_dim"], program["seq_len"])
        self._cache = Cache(self._torch, program)
        self._objects: dict[str, tuple[Object, dict[str, Any]]] = {}
        self._weights: dict[str, int] = {}
        self._programs: dict[tuple[str, int], Program] = {}
        self._view = view
        self._context = [self._stage(b, program, encodes=True) for b in context]
        self._token = [self._stage(b, program, encodes=False) for b in token]

    def forward(
        self,
        input_ids: Ids,
        position_ids: Ids,
        seq_ids: Ids,
        sampling_params: object = None,
    ) -> Floats:
        """Logits of each row's last real token.

        Rows whose tokens start at position 0 are prompts and are encoded; otherwise each row
        is one token of a sequence that was.

        Args:
            input_ids: [B, T] int64, padded right; B up to `batch_size`.
            position_ids: [B, T] int64, -1 where padded.
            seq_ids: [B] int64, the slot of each row; distinct.
            sampling_params: ignored; sampling is the host's.

        Returns:
            [B, vocab_size] float32.

        Raises:
            PromptTooLongError: a prompt exceeds the largest context bucket; nothing was run.
            RunError: shapes, slots or positions that no graph was compiled for.
        """
        input_ids, position_ids, seq_ids = (
            np.asarray(a, dtype=np.int64) for a in (input_ids, position_ids, seq_ids)
        )
        self._check(input_ids, position_ids, seq_ids)
        order = np.argsort(seq_ids, kind="stable")
        encodes = bool((position_ids[:, 0] == 0).all())
        run = self._encode if encodes else self._generate
        logits = run(input_ids[order], position_ids[order], seq_ids[order])
        restored = np.empty_like(logits)
        restored[order] = logits
        return restored

    def close(self) -> None:
        """Release programs and cache; the engine cannot be used after."""
        for program in self._programs.values():
            program.close()
        self._programs.clear()
        self._context.clear()
        self._token.clear()
        for handle in self._weights.values():
            self._torch.release(handle)
        self._weights.clear()
        self._cache.close()

    def _encode(self, input_ids: Ids, position_ids: Ids, seq_ids: Ids) -> Floats:
        lengths = (position_ids >= 0).sum(1)
        longest = int(lengths.max())
        if longest > self.max_context_length:
            raise PromptTooLongError(
                f"the prompt has {longest} tokens; the program takes {self.max_context_length}",
                hint=f"shorten it, or build with --max-context-length {longest} or more",
                details={"tokens": longest, "max_context_length": self.max_context_length},
            )
        logits = np.empty((len(seq_ids), self.vocab_size), np.float32)
        for row, (slot, length) in enumerate(zip(seq_ids, lengths, strict=True)):
            stage = next(s for s in self._context if s.bucket >= length)
            ids = np.zeros(stage.bucket, np.int64)
            ids[:length] = input_ids[row, :length]
            stage.x[0] = self._embed(ids)
            stage.cos[0], stage.sin[0] = self._cos[: stage.bucket], self._sin[: stage.bucket]
            stage.rows[0] = length - 1
            logits[row] = stage.run(int(slot), int(length) - 1)[0]
        return logits

    def _generate(self, input_ids: Ids, position_ids: Ids, seq_ids: Ids) -> Floats:
        positions = position_ids[:, 0]
        if input_ids.shape[1] != 1 or (positions < 0).any():
            raise RunError("token generation takes one token a row, each with its position")
        last = int(positions.max())
        if last >= self.seq_len:
            raise RunError(
                f"position {last} is past the compiled length {self.seq_len}",
                hint="build with a larger --seq-len",
                details={"position": last, "seq_len": self.seq_len},
            )
        stage = next(s for s in self._token if s.bucket > last)
        # A row sits where its slot is; rows of slots not asked for write to the scratch slot.
        stage.rows[:], stage.slots[:] = 0, self.batch_size
        stage.x[seq_ids, 0] = self._embed(input_ids[:, 0])
        stage.cos[seq_ids, 0], stage.sin[seq_ids, 0] = self._cos[positions], self._sin[positions]
        stage.rows[seq_ids], stage.slots[seq_ids] = positions, seq_ids
        return stage.run(None, 0)[seq_ids]

    def _embed(self, ids: Ids) -> Floats:
        return to_float32(self._embedding, ids)

    def _check(self, input_ids: Ids, position_ids: Ids, seq_ids: Ids) -> None:
        rows = len(seq_ids)
        if input_ids.ndim != 2 or input_ids.shape != position_ids.shape or seq_ids.ndim != 1:
            raise RunError("input_ids and position_ids are [B, T], seq_ids is [B]")
        if not 0 < rows == len(input_ids) <= self.batch_size or input_ids.shape[1] == 0:
            raise RunError(f"{len(input_ids)} rows; the program takes 1 to {self.batch_size}")
        legal = set(range(self.batch_size))
        if len(set(seq_ids.tolist())) != rows or not legal.issuperset(seq_ids.tolist()):
            raise RunError(
                f"slots {seq_ids.tolist()}; they must be distinct and below {self.batch_size}"
            )
        real = position_ids >= 0
        if input_ids[real].size and not 0 <= input_ids[real].min() <= input_ids[real].max() < (
            self.vocab_size
        ):
            raise RunError(f"a token id is outside the vocabulary of {self.vocab_size}")
        if input_ids.shape[1] > 1:
            expected = np.where(real, np.arange(input_ids.shape[1]), -1)
            if (
                not real[:, 0].all()
                or (position_ids != expected).any()
                or ((real[:, 1:] > real[:, :-1]).any())
            ):
                raise RunError("a prompt has positions 0, 1, …, then -1 where it is padded")

    def _stage(self, entry: Mapping[str, Any], program: Mapping[str, Any], encodes: bool) -> Stage:
        model = program["model"]
        keys = [entry["whole"]] if "whole" in entry else entry["layers"]
        layers = [self._program(key, index) for index, key in enumerate(keys)]
        edge = None if "whole" in entry else self._program(entry["edge"], -1)
        return Stage(
            self._torch,
            self._cache,
            layers,
            edge,
            batch=1 if encodes else self.batch_size,
            tokens=entry["bucket"] if encodes else 1,
            bucket=entry["bucket"],
            hidden=self._hidden,
            head_dim=model["head_dim"],
            vocabulary=self.vocab_size,
            encodes=encodes,
        )

    def _program(self, key: str, layer: int) -> Program:
        """The graph `key` with layer `layer`'s weights; -1 where the graph is not of a layer."""
        if (key, layer) not in self._programs:
            code, signature = self._object(key)
            parameters = signature["parameters"]
            bound = {p: self._weight(p, layer, shape) for p, (_, shape) in parameters.items()}
            self._programs[key, layer] = Program(code, bound)
        return self._programs[key, layer]

    def _object(self, key: str) -> tuple[Object, dict[str, Any]]:
        if key not in self._objects:
            directory = self._view / "graphs" / key
            try:
                signature = json.loads((directory / "graph.json").read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise RunError(f"{directory}: {error}", hint=REBUILD) from None
            self._objects[key] = Object(directory / "graph.so"), signature
        return self._objects[key]

    def _weight(self, parameter: str, layer: int, shape: Sequence[int]) -> int:
        name = self._names.of(parameter, layer)
        if name not in self._weights:
            tensor = self._checkpoint.tensor(name, shape)
            self._weights[name] = self._torch.tensor(tensor.address, shape, tensor.dtype)
        return self._weights[name]


class _Names:
    """From a graph's parameter to the checkpoint's tensor."""

    def __init__(self, prefix: str, tied: bool) -> None:
        self.prefix, self.tied = prefix, tied

    def of(self, parameter: str, layer: int) -> str:
        parameter = parameter.removeprefix("edge.")
        if parameter == "lm_head.weight":
            return f"{self.prefix}embed_tokens.weight" if self.tied else "lm_head.weight"
        if parameter.startswith(("layers.", "norm.")):
            return self.prefix + parameter
        return f"{self.prefix}layers.{layer}.{parameter}"


def _check_fits(program: Mapping[str, Any]) -> None:
    if program.get("format") != FORMAT:
        raise RunError(
            f"the program has format {program.get('format')}; this version runs {FORMAT}",
            hint=REBUILD,
        )
    built, here = program["toolchain"].get("torch"), torch_version()
    if built != here:
        raise RunError(
            f"the program was built with torch {built}; installed is {here}",
            hint=REBUILD,
            details={"built": built, "installed": here},
        )
    from neuroncompile.hardware.targets import CPU_LEVELS, host_arch, host_isa

    target, levels = program["target"], list(CPU_LEVELS)
    if target["arch"] != host_arch() or levels.index(target["isa"]) > levels.index(host_isa()):
        raise RunError(
            f"the program is for {target['isa']}; this host runs {host_isa()}",
            hint=f"build with --target cpu:{host_isa()}",
            details={"target": dict(target), "host": host_isa()},
        )
