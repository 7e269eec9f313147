"""One rule, one row: what it refuses, and the nearest config that it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from neuroncompile.config import NeuronConfig
from neuroncompile.config.rule import Case, Rule
from neuroncompile.errors import ConfigError

MODEL = {
    "model_type": "llama",
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


class Row(NamedTuple):
    """A config that one rule refuses, the field it blames, and a change that it accepts.

    Attributes:
        rule: the function.
        config: refused.
        field: blamed.
        change: merged over `config`, accepted.
        model: merged over `MODEL`.
        nxdi: the toolchain's NxD Inference.
    """

    rule: Rule
    config: dict[str, Any]
    field: str
    change: dict[str, Any]
    model: Mapping[str, Any] = {}
    target: str = "trn2"
    nxdi: tuple[int, int] | None = (0, 9)

    def case(self, resolve: Callable[..., NeuronConfig], *, changed: bool) -> Case:
        model = {**MODEL, **self.model}
        config = {"seq_len": 4096, **self.config, **(self.change if changed else {})}
        target = config.pop("--target", self.target)
        resolved = resolve(config=config, target=target, model=model)
        return Case(resolved, model, resolved.target, self.nxdi)


def refusal(row: Row, resolve: Callable[..., NeuronConfig]) -> ConfigError | None:
    """What the rule says of the row's config."""
    try:
        row.rule(row.case(resolve, changed=False))
    except ConfigError as error:
        return error
    return None


def check_row(row: Row, resolve: Callable[..., NeuronConfig]) -> None:
    """The rule refuses the one and accepts the other."""
    error = refusal(row, resolve)
    assert error is not None
    assert error.field == row.field
    assert row.field in str(error)
    assert error.legal is not None
    assert error.hint
    row.rule(row.case(resolve, changed=True))
