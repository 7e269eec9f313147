"""From layers to one effective config: default ← model ← recipe ← environment ← flag ← --set.

Layers merge deeply, leaf by leaf, and each leaf remembers the layer that set it. Defaults are
filled in last and only where nothing was said, so that what is hashed is complete: leaving a
keyword out and spelling its default give one key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neuroncompile.config import buckets
from neuroncompile.config.assignments import parse_assignment
from neuroncompile.config.legal import DTYPES, coerce, refuse_type, unknown_keyword
from neuroncompile.config.recipe import Recipe
from neuroncompile.config.schema import CLASSES, Row, fields_of
from neuroncompile.config.values import NeuronConfig, Value
from neuroncompile.errors import ConfigError
from neuroncompile.hardware.targets import Target

__all__ = ["DEFAULT_SEQ_LEN", "fill_defaults", "resolve_config"]

DEFAULT_SEQ_LEN = 4096
"""Upper limit of the default length, in tokens; the key-value cache grows with it."""

Tree = dict[str, Any]  # name → Value or Tree


def resolve_config(
    *,
    model: Mapping[str, Any],
    model_dtype: str | None,
    target: Target,
    base: Mapping[str, tuple[str, Any]] | None = None,
    recipe: Recipe | None = None,
    flags: Mapping[str, tuple[str, Any]] | None = None,
    overrides: Sequence[Mapping[str, Any]] = (),
    sets: Sequence[str] = (),
    allow_unknown: bool = False,
    environ: Mapping[str, str] | None = None,
) -> NeuronConfig:
    """Merge all layers and fill in the defaults.

    Args:
        model: normalised Hugging Face config; `model_type` and `max_position_embeddings` count.
        model_dtype: the checkpoint's own dtype, for `torch_dtype` "auto".
        target: what is compiled for; the result's `target` has `logical_nc_config` applied.
        base: NxDI keyword → (origin, value), other defaults than ours.
        flags: NxDI keyword → (the flag's name, value); a None value was not given.
        overrides: tables of `--override-neuron-config`, the last one wins.
        sets: `a.b=c` texts, the last one wins.
        allow_unknown: let keywords through that the schema does not know; they are hashed.
        environ: environment to read program-changing variables from; None reads none.

    Raises:
        ConfigError: an unknown keyword, a value of the wrong type or out of range.
    """
    merge = _Merge(fields_of(model.get("model_type")), model.get("model_type"), allow_unknown)
    for name, (origin, value) in (base or {}).items():
        merge.add({name: value}, origin)
    if recipe is not None:
        merge.add(recipe.config, f"recipe {recipe.name}")
    if not target.is_cpu and environ:
        from neuroncompile.config.environment import read_environment

        for name, value, origin in read_environment(environ, target).config:
            merge.add({name: value}, origin)
    for name, (flag, value) in (flags or {}).items():
        if value is not None:
            merge.add({name: value}, f"flag {flag}", text=True)
    for table in overrides:
        merge.add(table, "--override-neuron-config")
    for text in sets:
        path, value = parse_assignment(text)
        for name in reversed(path):
            value = {name: value}
        merge.add(value, "--set", text=True)
    tree = merge.tree
    target = _apply_lnc(tree, target)
    fill_defaults(tree, model, model_dtype, target)
    return NeuronConfig(_ordered(tree, merge.fields), target)


class _Merge:
    """The merged leaves so far."""

    def __init__(self, fields: dict[str, Row], family: str | None, allow_unknown: bool) -> None:
        self.tree: Tree = {}
        self.fields = fields
        self.owner = f"the neuron config of {family}" if family else "NxDI's NeuronConfig"
        self.allow_unknown = allow_unknown

    def add(self, layer: Mapping[str, Any], origin: str, *, text: bool = False) -> None:
        self._add(self.tree, layer, self.fields, self.owner, "", origin, text)

    def _add(
        self,
        tree: Tree,
        layer: Mapping[str, Any],
        fields: Mapping[str, Row],
        owner: str,
        prefix: str,
        origin: str,
        text: bool,
    ) -> None:
        for name, value in layer.items():
            path = prefix + name
            row = fields.get(name)
            if row is None:
                if not self.allow_unknown:
                    raise unknown_keyword(path, name, fields, owner=owner, origin=origin)
                _graft(tree, name, value, origin)
            elif row[1] in CLASSES:
                self._add_nested(tree, row, value, path, origin, text)
            else:
                self._add_leaf(tree, row, value, path, origin, text)

    def _add_nested(
        self, tree: Tree, row: Row, value: Any, path: str, origin: str, text: bool
    ) -> None:
        name, owner = row[0], row[1]
        if value is None:
            tree.pop(name, None)
            return
        if not isinstance(value, Mapping):
            raise refuse_type(row, value, path=path, origin=origin)
        if isinstance(tree.get(name), Value):
            del tree[name]  # an empty table, which this one fills
        if not value and name not in tree:
            tree[name] = Value({}, origin)  # NxDI's defaults, which differ from leaving it out
            return
        fields = {nested[0]: nested for nested in CLASSES[owner]}
        self._add(tree.setdefault(name, {}), value, fields, owner, f"{path}.", origin, text)

    def _add_leaf(
        self, tree: Tree, row: Row, value: Any, path: str, origin: str, text: bool
    ) -> None:
        if isinstance(value, Mapping) and "dict" not in row[1].split("|"):
            raise ConfigError(
                f"{path} has no fields of its own ({origin})",
                field=path,
                value=dict(value),
                legal="a single value",
                hint=f"set {path}=VALUE",
            )
        if row[0] == "torch_dtype" and value == "auto":
            value = None
        elif row[1] == "dtype" and isinstance(value, str):
            value = value.removeprefix("torch.")
        value = coerce(row, value, path=path, origin=origin, text=text)
        if value is None:
            tree.pop(row[0], None)  # unset again: an earlier layer's value is withdrawn too
        else:
            tree[row[0]] = Value(value, origin)


def _graft(tree: Tree, name: str, value: Any, origin: str) -> None:
    """An unknown keyword, taken as it is; tables still merge leaf by leaf."""
    if isinstance(value, Mapping) and value:
        node = tree.get(name)
        branch: Tree = node if isinstance(node, dict) else {}
        tree[name] = branch
        for child, inner in value.items():
            _graft(branch, child, inner, origin)
    else:
        tree[name] = Value(value, origin)


def _apply_lnc(tree: Tree, target: Target) -> Target:
    asked = tree.get("logical_nc_config")
    if asked is not None:
        return target.with_lnc(asked.value)
    if target.lnc is not None:
        tree["logical_nc_config"] = Value(target.lnc, f"default of {target.platform}")
    return target


def fill_defaults(
    tree: Tree, model: Mapping[str, Any], model_dtype: str | None, target: Target
) -> None:
    """Our defaults and what they imply, each where no layer spoke."""

    def default(name: str, value: Any, origin: str = "default") -> Any:
        return tree.setdefault(name, Value(value, origin)).value

    batch_size = default("batch_size", 1)
    default("padding_side", "right")
    seq_len = _default_seq_len(tree, model)
    if model_dtype in DTYPES:
        default("torch_dtype", model_dtype, "model")
    else:
        default("torch_dtype", "bfloat16", "default, the model names no dtype")
    context = default("max_context_length", seq_len, "default, derived from seq_len")
    continuous = default(
        "is_continuous_batching", batch_size > 1, "default, derived from batch_size"
    )
    if continuous:
        # NxDI encodes the prompts of a continuous batch one by one and asserts it.
        default("ctx_batch_size", 1, "default, one prompt at a time")
    else:
        default("ctx_batch_size", batch_size, "default, derived from batch_size")
    default("tkg_batch_size", batch_size, "default, derived from batch_size")
    enabled = default("enable_bucketing", True)
    default("tp_degree", 1)
    if _two_dimensional(tree):
        return  # NxDI pairs lengths with prefixes or tiles; it derives them itself
    length = tree["max_length"].value if "max_length" in tree else seq_len
    how = "derived from {}" if enabled else "the whole length, bucketing is off"
    default(
        "context_encoding_buckets",
        buckets.context_encoding(context, enable_bucketing=enabled),
        "default, " + how.format("max_context_length"),
    )
    default(
        "token_generation_buckets",
        buckets.token_generation(length, enable_bucketing=enabled),
        "default, " + how.format("max_length" if "max_length" in tree else "seq_len"),
    )


def _default_seq_len(tree: Tree, model: Mapping[str, Any]) -> int:
    if "seq_len" not in tree:
        positions = model.get("max_position_embeddings")
        if isinstance(positions, int) and positions > 0:
            value = min(positions, DEFAULT_SEQ_LEN)
            origin = f"default, min(max positions {positions}, {DEFAULT_SEQ_LEN})"
        else:
            value, origin = DEFAULT_SEQ_LEN, "default, the model names no max positions"
        tree["seq_len"] = Value(value, origin)
    seq_len: int = tree["seq_len"].value
    return seq_len


def _two_dimensional(tree: Tree) -> bool:
    prefix = tree.get("is_prefix_caching")
    return "chunked_prefill_config" in tree or (prefix is not None and bool(prefix.value))


def _ordered(tree: Tree, fields: Mapping[str, Row]) -> Tree:
    """The schema's order at the top and in nested configs; unknown keywords by name, last."""
    ordered: Tree = {}
    for name in (*fields, *sorted(set(tree) - set(fields))):
        node = tree.get(name)
        if node is None or node == {}:
            continue
        nested = CLASSES.get(fields[name][1], ()) if name in fields else ()
        if isinstance(node, dict):
            node = _ordered(node, {row[0]: row for row in nested})
        ordered[name] = node
    return ordered
