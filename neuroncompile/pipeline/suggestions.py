"""What to change so that a program fits, each change computed anew before it is named.

In the order of what a change costs: nothing (cores that are there), capacity (fewer sequences,
shorter ones), accuracy (eight bits), money (a larger instance). Where no single change is
enough, pairs are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from neuroncompile.config.memory import Need
from neuroncompile.errors import ConfigError
from neuroncompile.hardware.memory import device_memory
from neuroncompile.hardware.targets import CHIPS, INSTANCES, Target, legal_tp_degrees, parse_target
from neuroncompile.pipeline.subject import Subject, Variant

__all__ = ["Suggestion", "suggest"]

SMALLEST_LENGTH = 128

Sizer = Callable[[Variant], Need]


class Change(NamedTuple):
    """One thing to change.

    Attributes:
        text: for people.
        sets: `--set`s that do it.
        target: another target, or None.
    """

    text: str
    sets: tuple[str, ...] = ()
    target: str | None = None


class Suggestion(NamedTuple):
    """A change after which the program fits.

    Attributes:
        options: what to add to the command line.
        need: memory of a core then.
    """

    text: str
    options: tuple[str, ...]
    need: Need


def suggest(subject: Subject, size: Sizer) -> list[Suggestion]:
    """Changes that turn red into green or amber, cheapest first; empty where none does."""
    trial = _Trial(subject, size)
    singles = [change for change in trial.changes() if change is not None]
    found = [made for change in singles if (made := trial.of(change)) is not None]
    if found:
        return found
    weak = trial.weak_changes()
    pairs = (_both(one, other) for one, other in combinations(weak, 2) if not _clash(one, other))
    return [made for pair in pairs if (made := trial.of(pair)) is not None][:3]


def _both(one: Change, other: Change) -> Change:
    sets = (*one.sets, *(text for text in other.sets if text not in one.sets))
    return Change(f"{one.text}, and {other.text}", sets, one.target or other.target)


def _clash(one: Change, other: Change) -> bool:
    names = [{text.partition("=")[0] for text in change.sets} for change in (one, other)]
    return bool(names[0] & names[1]) or bool(one.target and other.target)


class _Trial:
    """Tries changes on one subject."""

    def __init__(self, subject: Subject, size: Sizer) -> None:
        self.subject, self.size = subject, size
        self.config = subject.variant.config
        self.target = subject.variant.target

    def of(self, change: Change) -> Suggestion | None:
        """The change as a suggestion, if its program is legal and fits."""
        need = self._need(change)
        if need is None or need.verdict == "red":
            return None
        options = tuple(f"--set {text}" for text in change.sets)
        if change.target:
            options = (f"--target {change.target}", *options)
        return Suggestion(change.text, options, need)

    def _need(self, change: Change) -> Need | None:
        try:
            return self.size(self.subject.vary(change.sets, change.target))
        except ConfigError:
            return None

    def changes(self) -> Iterator[Change | None]:
        """Single changes, each the mildest of its kind that fits, cheapest kind first."""
        yield self._first(self._lncs())
        yield self._first(self._degrees(self.target))
        yield self._first(self._batches())
        yield self._length()
        yield from self._eight_bits()
        yield from self._instances()

    def weak_changes(self) -> list[Change]:
        """The strongest of each kind, for pairs; a length is cut to a quarter at most."""
        strongest = [*self._lncs()][-1:] + [*self._degrees(self.target)][-1:]
        strongest += [*self._batches()][-1:]
        if (length := self.config["seq_len"] // 4) >= SMALLEST_LENGTH:
            strongest.append(self._of_length(length))
        return [*strongest, *self._eight_bits(), *self._larger()[:2]]

    def _first(self, changes: Iterator[Change]) -> Change | None:
        return next((change for change in changes if self.of(change) is not None), None)

    def _lncs(self) -> Iterator[Change]:
        default = CHIPS[self.target.platform].lnc[0]
        if (self.target.lnc or 1) < default:
            degree = self.config["tp_degree"]
            legal = legal_tp_degrees(self.target.with_lnc(default)) or ()
            sets = [f"logical_nc_config={default}"]
            if degree not in legal and legal:
                sets.append(f"tp_degree={max(legal)}")
            yield Change(f"logical cores of {default} physical ones", tuple(sets))

    def _degrees(self, target: Target) -> Iterator[Change]:
        now = self.config["tp_degree"]
        for degree in legal_tp_degrees(target) or ():
            if degree > now:
                yield Change(f"tensor parallelism {degree} in place of {now}", self._tp(degree))

    def _tp(self, degree: int) -> tuple[str, ...]:
        """A degree, and the keywords whose product with it is fixed."""
        sets = [f"tp_degree={degree}"]
        experts = self.config.get("moe_ep_degree", 1)
        if "moe_tp_degree" in self.config and degree % experts == 0:
            sets.append(f"moe_tp_degree={degree // experts}")
        return tuple(sets)

    def _batches(self) -> Iterator[Change]:
        now = batch = self.config["batch_size"]
        while batch > 1:
            batch //= 2
            sets = [f"batch_size={batch}"]
            for name in ("ctx_batch_size", "tkg_batch_size", "max_batch_size"):
                if self.config.get(name, 1) > batch:
                    sets.append(f"{name}={batch}")
            yield Change(f"{batch} sequences at once in place of {now}", tuple(sets))

    def _length(self) -> Change | None:
        """The longest multiple of 128 that fits, by bisection: need grows with the length."""
        low, high = 0, (self.config["seq_len"] - 1) // SMALLEST_LENGTH
        while low < high:
            middle = (low + high + 1) // 2
            if self.of(self._of_length(middle * SMALLEST_LENGTH)) is not None:
                low = middle
            else:
                high = middle - 1
        return self._of_length(low * SMALLEST_LENGTH) if low else None

    def _of_length(self, length: int) -> Change:
        sets = [f"seq_len={length}"]
        for name in ("max_length", "max_context_length"):
            if self.config.get(name, 0) > length:
                sets.append(f"{name}={length}")
        for name in ("context_encoding_buckets", "token_generation_buckets"):
            if name in self.config and not self.config.origin(name).startswith("default"):
                sets.append(f"{name}=null")
        return Change(f"sequences of {length} in place of {self.config['seq_len']}", tuple(sets))

    def _eight_bits(self) -> Iterator[Change]:
        if not self.config.get("kv_quant_config"):
            cache = ("kv_cache_quant=true", "kv_quant_config.direct_cast=true")
            yield Change("an FP8 key-value cache", cache)
        if not self.config.get("quantized"):
            fp8 = self.target.platform in ("trn2", "trn3")
            dtype = "f8e4m3" if fp8 else "int8"
            sets = (
                "quantized=true",
                f"quantization_dtype={dtype}",
                "quantization_type=per_channel_symmetric",
                "quantized_checkpoints_path=DIR",
            )
            what = f"{'FP8' if fp8 else 'INT8'} weights, saved to DIR beforehand"
            yield Change(what, sets)

    def _instances(self) -> Iterator[Change | None]:
        """The smallest of the same chip and the smallest of another one that hold it."""
        for same in (True, False):
            yield self._first(
                change
                for change in self._larger()
                if (INSTANCES[str(change.target)].platform == self.target.platform) is same
            )

    def _larger(self) -> list[Change]:
        now = self.config["tp_degree"]
        here = self.target.instance
        floor = device_memory(here) if here else 0
        changes = []
        rows = [row for row in INSTANCES.values() if row.confidence != "low" and row.name != here]
        for row in sorted(rows, key=lambda row: (device_memory(row.name), row.name)):
            if device_memory(row.name) <= floor or (
                not here and row.platform == self.target.platform
            ):
                continue
            for degree in legal_tp_degrees(parse_target(row.name)) or ():
                if degree >= now:
                    text = f"{row.name} with tensor parallelism {degree}"
                    changes.append(Change(text, self._tp(degree), row.name))
        return changes
