"""What one logical core's memory has to hold, and whether it does.

    need = weights + key-value cache + scratch + inputs and outputs + code and rings

Weights and cache are arithmetic (`config.sizing`). The rest is an estimate and marked as one:
only a compiled program says what it is, and each assumption below is written where it is made.
Calibrated with the sizes that NxD Inference's contributed models report (DeepSeek-V3 23.1 of
24 GiB beside 21.4 of weights; GLM-5.2 about 26 for 24; MiniMax-M3 about 30 at 8 prompts of 8,192).

Verdicts: up to 0.90 of the core's memory "green", up to all of it "amber", above "red".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from neuroncompile.config.dimensions import Dimensions
from neuroncompile.config.heads import shard_heads
from neuroncompile.config.sizing import BYTES, cache_of, weight_bytes

__all__ = ["AMBER", "ASSUMPTIONS", "GREEN", "Need", "core_need", "scratch_bytes", "verdict_of"]

MIB = 1 << 20
GREEN, AMBER = 0.90, 1.0
"""Largest fractions of the memory for these verdicts. The vendor's rule of thumb leaves a tenth
for what no estimate sees; between the two a program may compile and still not load."""

SCRATCH_PAGE = {"trn1": 64 * MIB, "trn1n": 64 * MIB, "inf2": 64 * MIB}
LARGE_PAGE = 512 * MIB
MICROCODE = 96 * MIB
CODE_PER_LAYER = MIB
RINGS, EXPERT_RINGS = 512 * MIB, 1024 * MIB

ASSUMPTIONS = {
    "scratch": "the widest context-encoding graph: six copies of its hidden states, one of each "
    "intermediate, with experts two more for every active one; rounded up to the runtime's page",
    "io": "token ids, positions and masks as int32; logits in float32 unless sampling is on device",
    "code": "96 MiB of microcode a physical core, 1 MiB of instructions a layer and graph, DMA "
    "rings of 512 MiB (1 GiB with experts)",
}
"""Estimated part → what was assumed, for the page."""


class Need(NamedTuple):
    """Bytes on one logical core.

    Attributes:
        weights: group → bytes, as `sizing.weight_bytes`.
        cache: key-value cache.
        cache_token: what one more token of one sequence takes.
        scratch, io, code: the estimates.
        draft: weights and cache of a draft model, 0 without one.
        budget: memory of the core.
    """

    weights: Mapping[str, int]
    cache: int
    cache_token: int
    scratch: int
    io: int
    code: int
    draft: int
    budget: int

    @property
    def weight_total(self) -> int:
        return sum(self.weights.values())

    @property
    def total(self) -> int:
        return self.weight_total + self.cache + self.scratch + self.io + self.code + self.draft

    @property
    def fraction(self) -> float:
        return self.total / self.budget

    @property
    def verdict(self) -> str:
        return verdict_of(self.total, self.budget)

    @property
    def parts(self) -> dict[str, int]:
        """What the page shows, in its order; a draft only where there is one."""
        parts = {
            "weights": self.weight_total,
            "key-value cache": self.cache,
            "scratch": self.scratch,
            "inputs, outputs": self.io,
            "code and rings": self.code,
        }
        return parts | ({"draft model": self.draft} if self.draft else {})


def verdict_of(need: float, budget: float) -> str:
    """ "green", "amber" or "red" for bytes needed of bytes there."""
    fraction = need / budget
    return "green" if fraction <= GREEN else "amber" if fraction <= AMBER else "red"


def core_need(
    model: Dimensions,
    neuron: Mapping[str, Any],
    *,
    budget: int,
    platform: str,
    graphs: int,
    draft: tuple[Dimensions, Mapping[str, Any]] | None = None,
) -> Need:
    """The sum for one logical core.

    Args:
        model: its sizes.
        neuron: effective NxDI keywords.
        budget: bytes of the core (`hardware.memory.core_memory`).
        platform: "trn1", …, for the runtime's page size.
        graphs: compiled graphs; their code is loaded together.
        draft: a draft model and its own keywords, loaded on the same cores.
    """
    cache = cache_of(model, neuron)
    extra = 0
    if draft is not None:
        extra = sum(weight_bytes(*draft).values()) + cache_of(*draft).bytes
    return Need(
        weights=weight_bytes(model, neuron),
        cache=cache.bytes,
        cache_token=cache.token,
        scratch=scratch_bytes(model, neuron, platform),
        io=_io(model, neuron),
        code=_code(model, neuron, graphs),
        draft=extra,
        budget=budget,
    )


def scratch_bytes(model: Dimensions, neuron: Mapping[str, Any], platform: str) -> int:
    """Intermediate tensors of the widest graph (an estimate).

    Graphs run one at a time and share one scratchpad, so the largest counts, not the sum. Under
    sequence parallelism the residual stream is split between the ranks.
    """
    tp = neuron.get("tp_degree") or 1
    batch = neuron.get("ctx_batch_size") or neuron.get("batch_size") or 1
    tokens = batch * _widest(neuron)
    element = BYTES[neuron.get("torch_dtype") or "bfloat16"]
    stream = 6 * model.hidden
    if neuron.get("sequence_parallel_enabled"):
        stream = 2 * model.hidden + 4 * model.hidden // tp
    heads = shard_heads(model.heads, model.kv_heads, tp)
    attention = (heads.padded_query + 2 * heads.sharded_key_value) // tp * model.head_dim
    if model.latent is not None:
        latent = model.latent
        attention = -(-model.heads // tp) * (latent.nope + latent.rope + latent.rank)
    mlp = 2 * -(-max(model.intermediate, model.shared_intermediate) // tp)
    experts = 2 * model.active_experts * model.hidden if model.experts else 0
    logits = batch * -(-model.vocab // tp) * 4
    size = tokens * (stream + attention + mlp + experts) * element + logits
    page = SCRATCH_PAGE.get(platform, LARGE_PAGE)
    if configured := neuron.get("scratchpad_page_size"):
        page = configured * MIB
    return -(-size // page) * page


def _widest(neuron: Mapping[str, Any]) -> int:
    """Tokens of one row of the widest context-encoding graph."""
    buckets: Sequence[Any] = neuron.get("context_encoding_buckets") or ()
    widths = [b if isinstance(b, int) else b[0] for b in buckets]
    return max(widths, default=neuron.get("max_context_length") or neuron.get("seq_len") or 1)


def _io(model: Dimensions, neuron: Mapping[str, Any]) -> int:
    """Tensors that are bound for each call; the cache is aliased, hence counted once."""
    context = (neuron.get("ctx_batch_size") or neuron.get("batch_size") or 1) * _widest(neuron)
    decode = neuron.get("batch_size") or 1
    masks = decode * (neuron.get("seq_len") or 1)
    logits = 0
    if not neuron.get("on_device_sampling_config") or neuron.get("output_logits"):
        logits = decode * model.vocab * 4  # gathered: whole on every rank
    return (3 * context + 2 * masks) * 4 + 2 * logits


def _code(model: Dimensions, neuron: Mapping[str, Any], graphs: int) -> int:
    cores = neuron.get("logical_nc_config") or 1
    rings = EXPERT_RINGS if model.experts else RINGS
    return MICROCODE * cores + graphs * model.layers * CODE_PER_LAYER + rings
