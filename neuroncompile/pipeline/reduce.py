"""Shrink a configuration that fails to compile, while it fails in the same way.

A bug report with one layer, one bucket and one feature is read; one with eighty layers is not.
The search goes along one axis at a time: layers, buckets, length, batch, tensor parallel degree,
and features; sets by delta debugging (Zeller and Hildebrandt, 2002), numbers by the smallest of
a ladder. It starts over until nothing shrinks any more. Candidates and their order depend on
the configuration and the answers alone, so a search with the answers of an earlier one goes on
where that stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from neuroncompile.backends.nxdi.failures import Failure
from neuroncompile.backends.nxdi.policy import with_batch, with_buckets
from neuroncompile.errors import ConfigError
from neuroncompile.keys import digest_of
from neuroncompile.keys.canonical import canonical_bytes

__all__ = ["Candidate", "Reduction", "Step", "reduce_config"]

SAME, PASSES, REFUSED = "same", "passes", "refused"

LAYERS = ("num_hidden_layers", "n_layer", "num_layers")

_KEPT: tuple[str, ...] = (
    *("batch_size", "max_batch_size", "ctx_batch_size", "tkg_batch_size", "spec_batch_size"),
    *("seq_len", "max_context_length", "max_length", "n_positions", "n_active_tokens"),
    *("context_encoding_buckets", "token_generation_buckets", "token_generation_batches"),
    *("buckets", "enable_bucketing", "prefix_buckets", "padding_side"),
    *("tp_degree", "pp_degree", "ep_degree", "cp_degree", "logical_nc_config"),
    *("torch_dtype", "target", "on_cpu"),
)
"""Keywords that are no feature to leave out."""


class Candidate(NamedTuple):
    """A configuration to try.

    Attributes:
        model: the Hugging Face config, as in a spec.
        neuron: keywords of the neuron config, as in a spec: what is absent has its default.
    """

    model: Mapping[str, Any]
    neuron: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256, 64 hex digits."""
        return digest_of(canonical_bytes({"model": self.model, "neuron": self.neuron}))


class Step(NamedTuple):
    """One candidate.

    Attributes:
        number: from 1.
        change: what it differs in from the best so far, in words.
        outcome: "same", "passes", "refused" or the reason of another failure.
        known: answered by an earlier search; nothing was compiled.
    """

    number: int
    change: str
    outcome: str
    known: bool

    @property
    def kept(self) -> bool:
        """Whether the search goes on from it."""
        return self.outcome == SAME


class Reduction(NamedTuple):
    """The end of a search.

    Attributes:
        candidate: the smallest that fails in the same way.
        changes: what was shrunk, in words, in the order of the axes.
        calls: compiles that it took now; answers from before are free.
        complete: nothing shrinks any more; else the limit was reached first.
    """

    candidate: Candidate
    changes: tuple[str, ...]
    calls: int
    complete: bool


class _Enough(Exception):  # noqa: N818 - the end of the search, not an error
    pass


def reduce_config(
    start: Candidate,
    original: Failure,
    fails: Callable[[Candidate], Failure | None],
    *,
    limit: int = 100,
    tries: int = 1,
    answers: MutableMapping[str, str] | None = None,
    on_step: Callable[[Step], None] = lambda step: None,
) -> Reduction:
    """The smallest configuration on the way from `start` that fails as `original` does.

    Args:
        start: known to fail so; it is not tried.
        fails: compiles a candidate; None when it passes. A ConfigError means that it cannot be
            built at all; any other exception ends the search.
        limit: calls of `fails` in all.
        tries: compiles of one candidate before it counts as passing; more than one for a failure
            that comes and goes, see `reproduce.tries_for`.
        answers: digest → outcome of a search before this one; new ones are added as they come.
        on_step: told every candidate once, those that `answers` knew before included.
    """
    search = _Search(start, original, fails, limit, tries, {} if answers is None else answers)
    search.on_step = on_step
    complete = True
    try:
        while search.go_round():
            pass
    except _Enough:
        complete = False
    return Reduction(search.best, tuple(_differences(start, search.best)), search.calls, complete)


class _Search:
    def __init__(
        self,
        start: Candidate,
        original: Failure,
        fails: Callable[[Candidate], Failure | None],
        limit: int,
        tries: int,
        answers: MutableMapping[str, str],
    ) -> None:
        self.best, self.original, self.fails = start, original, fails
        self.limit, self.tries, self.answers = limit, max(1, tries), answers
        self.calls = 0
        self.told: set[str] = set()
        self.on_step: Callable[[Step], None] = lambda step: None

    def go_round(self) -> bool:
        """Once along every axis; whether anything shrank."""
        before = self.best
        self._number("layers", _layers(self.best.model), _with_layers)
        for name in _bucket_lists(self.original):
            self._buckets(name)
            self._length(name)
        self._number("batch_size", self.best.neuron.get("batch_size"), _with_batch)
        degree = self.best.neuron.get("tp_degree")
        self._number("tp_degree", degree, _with_degree, _divisors(degree))
        self._features()
        return self.best != before

    def _holds(self, candidate: Candidate, change: str) -> bool:
        """Try a candidate and go on from it if it fails in the same way."""
        if candidate == self.best:
            return True
        digest = candidate.digest
        known = digest in self.answers
        if not known:
            self.answers[digest] = self._ask(candidate)
        outcome = self.answers[digest]
        if outcome == SAME:
            self.best = candidate
        if digest not in self.told:
            self.told.add(digest)
            self.on_step(Step(len(self.told), change, outcome, known))
        return outcome == SAME

    def _ask(self, candidate: Candidate) -> str:
        outcome = PASSES
        for _ in range(self.tries):
            if self.calls >= self.limit:
                raise _Enough
            self.calls += 1
            try:
                failure = self.fails(candidate)
            except ConfigError:
                return REFUSED
            if failure is not None and failure.same_as(self.original):
                return SAME
            if failure is not None:
                outcome = failure.reason
        return outcome

    def _number(
        self,
        name: str,
        current: Any,
        change: Callable[[Candidate, int], Candidate],
        ladder: Sequence[int] | None = None,
    ) -> None:
        """The smallest of a ladder that holds; without one, powers of two and then bisection."""
        if not isinstance(current, int) or current < 2:
            return
        start, passed = self.best, 0
        for value in ladder if ladder is not None else _powers(current):
            if self._holds(change(start, value), f"{name} {value}"):
                current = value
                break
            passed = value
        while ladder is None and current - passed > 1:
            middle = (passed + current) // 2
            if self._holds(change(start, middle), f"{name} {middle}"):
                current = middle
            else:
                passed = middle

    def _buckets(self, name: str) -> None:
        buckets: Sequence[Any] = self.best.neuron.get(name) or ()
        if not all(isinstance(bucket, int) for bucket in buckets):
            return
        start = self.best

        def holds(kept: Sequence[int]) -> bool:
            changes = with_buckets(start.neuron, name, sorted(kept))
            shown = ", ".join(map(str, sorted(kept)))
            return self._holds(_with_neuron(start, changes), f"{name} {shown}")

        self._fewest(sorted(buckets), holds, least=1)

    def _length(self, name: str) -> None:
        """A single bucket gets shorter."""
        buckets: Sequence[Any] = self.best.neuron.get(name) or ()
        if len(buckets) != 1 or not isinstance(buckets[0], int):
            return
        start = self.best
        for value in _powers(buckets[0], least=128):
            changes = with_buckets(start.neuron, name, [value])
            if self._holds(_with_neuron(start, changes), f"{name} {value}"):
                return

    def _features(self) -> None:
        start = self.best
        features = sorted(name for name in start.neuron if name not in _KEPT)

        def holds(kept: Sequence[str]) -> bool:
            left = [name for name in features if name not in kept]
            neuron = {name: v for name, v in start.neuron.items() if name not in left}
            return self._holds(start._replace(neuron=neuron), f"without {', '.join(left)}")

        self._fewest(features, holds, least=0)

    def _fewest(
        self, items: Sequence[Any], holds: Callable[[Sequence[Any]], bool], *, least: int
    ) -> None:
        """Delta debugging: a subset that holds and no longer does without any one item."""
        kept = list(items)
        if len(kept) <= least or (least == 0 and holds([])):
            return
        parts = 2
        while len(kept) > max(least, 1):
            pieces = _split(kept, parts)
            single = next((p for p in pieces if len(p) < len(kept) and holds(p)), None)
            if single is not None:
                kept = single
                parts = 2
                continue
            rests = ([x for x in kept if x not in piece] for piece in pieces)
            rest = next((r for r in rests if parts > 2 and len(r) >= least and holds(r)), None)
            if rest is not None:
                kept = rest
                parts = max(2, parts - 1)
            elif parts >= len(kept):
                return
            else:
                parts = min(len(kept), parts * 2)


# ---- one axis each


def _layers(model: Mapping[str, Any]) -> int | None:
    inner = _inner(model)
    return next((inner[name] for name in LAYERS if isinstance(inner.get(name), int)), None)


def _inner(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config of the language model inside an image-to-text one."""
    inner = model.get("text_config")
    return inner if isinstance(inner, Mapping) else model


def _with_layers(candidate: Candidate, layers: int) -> Candidate:
    """Fewer layers; lists with an entry a layer get as many."""
    inner, before = dict(_inner(candidate.model)), _layers(candidate.model)
    for name, value in inner.items():
        if name in LAYERS:
            inner[name] = layers
        elif isinstance(value, list) and len(value) == before:
            inner[name] = value[:layers]
    nested = _inner(candidate.model) is not candidate.model
    model = {**candidate.model, "text_config": inner} if nested else inner
    return candidate._replace(model=model)


def _with_neuron(candidate: Candidate, changes: Mapping[str, Any]) -> Candidate:
    return candidate._replace(neuron={**candidate.neuron, **changes})


def _with_batch(candidate: Candidate, batch: int) -> Candidate:
    return _with_neuron(candidate, with_batch(candidate.neuron, batch))


def _with_degree(candidate: Candidate, degree: int) -> Candidate:
    return _with_neuron(candidate, {"tp_degree": degree})


def _bucket_lists(failure: Failure) -> tuple[str, str]:
    """The lists of buckets, the other submodel's first: it can shrink without a trace."""
    lists = ("token_generation_buckets", "context_encoding_buckets")
    generates = failure.submodel.startswith(("token", "spec", "fused", "medusa"))
    return lists[::-1] if generates else lists


def _powers(below: int, least: int = 1) -> list[int]:
    return [1 << n for n in range(below.bit_length()) if least <= 1 << n < below]


def _divisors(number: Any) -> list[int]:
    if not isinstance(number, int):
        return []
    return [value for value in range(1, number) if number % value == 0]


def _split(items: Sequence[Any], parts: int) -> list[list[Any]]:
    size, more = divmod(len(items), parts)
    pieces, at = [], 0
    for index in range(parts):
        end = at + size + (index < more)
        if end > at:
            pieces.append(list(items[at:end]))
        at = end
    return pieces


def _differences(start: Candidate, end: Candidate) -> Iterator[str]:
    if (layers := _layers(start.model)) != _layers(end.model):
        yield f"layers {layers} → {_layers(end.model)}"
    for name, value in start.neuron.items():
        if name not in end.neuron:
            yield f"without {name}"
        elif end.neuron[name] != value:
            yield f"{name} {_shown(value)} → {_shown(end.neuron[name])}"


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
