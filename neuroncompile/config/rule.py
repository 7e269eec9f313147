"""What a rule over a whole config sees, and how it refuses.

A rule is one function from a `Case` to warnings; it raises where the combination cannot work.
Rules that hold for every target are in `checks`; those of NxD Inference, in `rules_*`, are only
imported for a Neuron target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from neuroncompile.config.values import NeuronConfig
from neuroncompile.errors import ConfigError
from neuroncompile.hardware.targets import Target

__all__ = ["Case", "Rule"]


class Case:
    """One effective config with what it is for.

    Attributes:
        config: what a layer set, and our defaults.
        model: normalised Hugging Face config; {} when it is not known.
        target: what is compiled for.
        nxdi: (major, minor) of the toolchain's NxD Inference, or None when none is named.
    """

    __slots__ = ("_fields", "config", "model", "nxdi", "target")

    def __init__(
        self,
        config: NeuronConfig,
        model: Mapping[str, Any],
        target: Target,
        nxdi: tuple[int, int] | None = None,
    ) -> None:
        self.config, self.model, self.target, self.nxdi = config, model, target, nxdi
        self._fields: dict[str, Any] = {}

    @property
    def family(self) -> str:
        """`model_type`, or "" when the model names none."""
        return str(self.model.get("model_type") or "")

    def given(self, name: str) -> bool:
        """Whether a layer (not the model or a default of ours) set this keyword or part of it."""
        if name not in self.config:
            return False
        value = self.config[name]
        if isinstance(value, Mapping) and value:
            return True  # no nested config has defaults of ours
        return not self.origin(name).startswith(("default", "model"))

    def origin(self, name: str) -> str:
        try:
            return self.config.origin(name)
        except KeyError:  # nested, or not in the config at all
            inner = next((row for row in self.config.rows() if row[0].startswith(name + ".")), None)
            return inner[2] if inner else "NxDI's default"

    def get(self, path: str) -> Any:
        """The value of a dotted keyword as NxDI would have it: its default where none is set.

        Of a nested config that is absent, every keyword is None.
        """
        name, _, rest = path.partition(".")
        if name in self.config:
            value = self.config[name]
            return value if not rest else _inner(name, rest, value, self._rows())
        row = self._rows().get(name)
        return None if row is None or rest else self._default(row[2])

    def _rows(self) -> dict[str, Any]:
        if not self._fields:
            from neuroncompile.config.schema import fields_of

            self._fields = fields_of(None)
        return self._fields

    def _default(self, default: Any) -> Any:
        if not (isinstance(default, str) and default.startswith("=")):
            return default
        source = default[1:]
        if source in self._rows():
            return self.get(source)
        if source == "tp_degree * pp_degree * ep_degree":
            return self.get("tp_degree") * self.get("pp_degree") * self.get("ep_degree")
        return None  # a length less another, a list of one: nobody asks

    def said(self, name: str) -> str:
        """A keyword and its value for a message; of a derived one also what it follows."""
        origin = self.origin(name)
        follows = f" ({origin})" if "derived" in origin else ""
        return f"{name} {self.get(name)}{follows}"

    @property
    def length(self) -> str:
        """The keyword that decides how many positions a sequence has."""
        return "max_length" if "max_length" in self.config else "seq_len"

    def on(self, name: str) -> bool:
        """Whether a feature is on: a degree above 1, otherwise anything but off, 0 or unset.

        An empty nested config is on: NxDI fills it with defaults.
        """
        value = self.get(name)
        if isinstance(value, Mapping):
            return name in self.config
        if name.endswith("_degree"):
            return bool(value > 1)
        return bool(value)

    def refusal(self, field: str, because: str, legal: Any, hint: str) -> ConfigError:
        """The error for a keyword whose value cannot go with the others."""
        value = self.get(field)
        return ConfigError(
            f"{field} is {value!r} ({self.origin(field)}); {because}",
            field=field,
            value=value,
            legal=legal,
            hint=hint,
        )


Rule = Callable[[Case], list[str]]


def _inner(name: str, path: str, value: Any, rows: Mapping[str, Any]) -> Any:
    from neuroncompile.config.schema import CLASSES

    if not isinstance(value, Mapping):
        return None
    if path in value:
        return value[path]
    owner = rows[name][1] if name in rows else ""
    default = next((row[2] for row in CLASSES.get(owner, ()) if row[0] == path), None)
    return None if isinstance(default, str) and default.startswith("=") else default
