"""Prints what the constructors of NxD Inference's config classes take, as one JSON document.

Run by the vendor's own interpreter: `python constructors.py MODULE:Class …`. Class → keyword →
`{"value": …}`, the default as the class's own module evaluates it, `{"text": …}` for one that is
made of other keywords or of the target, or `{}` where there is none. Read from the syntax tree,
because a constructor says nothing of a keyword that it pops.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import json
import sys
import textwrap
from typing import Any


def plain(value: Any) -> Any:
    """A default as JSON: an enumeration's value or name, a dtype's name."""
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value.value, str) else value.name
    if type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    return value


def default(node: ast.expr | None, names: dict[str, Any]) -> dict[str, Any]:
    """What a default's expression comes to."""
    if node is None:
        return {}
    text = ast.unparse(node)
    used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    if "self" in used or "get_platform_target" in used:
        return {"text": text.replace("self.", "")}
    return {"value": plain(eval(text, names))}


def popped(function: Any) -> dict[str, dict[str, Any]]:
    """Keyword → default of each `kwargs.pop` in a function."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found: dict[str, dict[str, Any]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "kwargs.pop":
            continue
        name, *rest = node.args
        assert isinstance(name, ast.Constant), ast.unparse(node)
        said = default(rest[0] if rest else None, function.__globals__)
        assert found.setdefault(name.value, said) == said, name.value  # popped twice, alike
    return found


def taken(cls: type) -> dict[str, dict[str, Any]]:
    """Keyword → default of all that a class's own constructors take."""
    constructor: Any = cls.__init__
    found = popped(constructor)
    for name, parameter in list(inspect.signature(constructor).parameters.items())[1:]:
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            empty = parameter.default is parameter.empty
            found[name] = {} if empty else {"value": plain(parameter.default)}
    more = [name for name in ("_get_lnc", "from_kwargs") if name in vars(cls)]
    for name in more:
        found |= popped(getattr(cls, name))
    return found


if __name__ == "__main__":
    document = {}
    for place in sys.argv[1:]:
        module, _, name = place.partition(":")
        document[name] = taken(getattr(importlib.import_module(module), name))
    sys.stdout.write("@@" + json.dumps(document, default=repr) + "\n")
