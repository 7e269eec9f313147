"""Recipe files: where they are, what they may hold, how they inherit.

A name is looked for in `./recipes`, then in the package's copy, then, in an editable install,
in the repository's. A path is a path. `extends` names another recipe the same way, relative to
the extending file; tables merge deeply, except that a new `[model] ref` drops the parent's
model, a new platform or instance its target, and a new `sdk` its versions.

A `[matrix]` makes a recipe many: its points are what a recipe would be that extends it and says
the point's values, and `NAME[a=1,b=2]` names one of them wherever a recipe is named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any

from neuroncompile.config.recipe import Recipe
from neuroncompile.errors import ConfigError, ModelNotFoundError, nearest

__all__ = [
    "expand",
    "find_cell",
    "find_recipe",
    "list_recipes",
    "load_recipe",
    "recipe_directories",
]

SCHEMA = 1

_MODEL = {"ref": str, "revision": str, "digests": dict, "facts": dict}
TABLES: dict[str, Mapping[str, type] | None] = {
    "model": _MODEL | {"class": str},
    "target": {"platform": str, "instance": str, "lnc": int, "isa": str},
    "config": None,  # NxDI keywords; checked against the schema when they are merged
    "matrix": None,
    "toolchain": None,
    "draft": _MODEL | {"config": dict},
    "adapters": None,  # one table a name, each as ADAPTER
    "golden": None,
}
ADAPTER: Mapping[str, type] = {"ref": str, "revision": str, "digests": dict}
DIGESTS = ("wheel", "file")
MATRIX_TABLES = ("config", "model", "target", "toolchain")


def recipe_directories() -> list[Path]:
    """Where names are looked for, first to last; only those that exist."""
    package = Path(__file__).parents[1]
    candidates = [Path("recipes"), package / "recipes"]
    if (package.parent / "pyproject.toml").is_file():
        candidates.append(package.parent / "recipes")
    return [path for path in candidates if path.is_dir()]


def find_recipe(name: str) -> Path | None:
    """The file of a recipe by path or by name, or None."""
    path = Path(name).expanduser()
    if name.endswith(".toml") and path.is_file():
        return path
    if "/" in name or not name:
        return None
    stem = name.removesuffix(".toml")
    files = (directory / f"{stem}.toml" for directory in recipe_directories())
    return next((file for file in files if file.is_file()), None)


def list_recipes() -> list[tuple[str, Path]]:
    """(name, file) of every recipe that can be named, by name; of one name the first file wins."""
    found: dict[str, Path] = {}
    for directory in recipe_directories():
        for path in sorted(directory.glob("*.toml")):
            found.setdefault(path.stem, path)
    return sorted(found.items())


def load_recipe(name_or_path: str | Path) -> Recipe:
    """Read a recipe and what it extends.

    Raises:
        ModelNotFoundError: no such recipe, with the nearest.
        ConfigError: malformed, an unknown table or key, or a circle of `extends`.
    """
    path = find_recipe(str(name_or_path))
    if path is None:
        raise _not_found(str(name_or_path))
    table, parents = _load_chain(path, ())
    model = table.get("model", {})
    return Recipe(
        name=path.stem,
        path=path,
        parents=parents,
        model_ref=model.get("ref"),
        revision=model.get("revision"),
        digests=model.get("digests", {}),
        facts=model.get("facts", {}),
        target_table=table.get("target", {}),
        config=table.get("config", {}),
        matrix={key: tuple(values) for key, values in table.get("matrix", {}).items()},
        toolchain=table.get("toolchain", {}),
        draft=table.get("draft", {}),
        adapters=table.get("adapters", {}),
        golden=table.get("golden", {}),
        model_class=model.get("class"),
    )


def expand(recipe: Recipe) -> Iterator[Recipe]:
    """One recipe a point of the matrix, in the file's order; the recipe itself without one."""
    if not recipe.matrix:
        yield recipe
        return
    labels = _axis_labels(recipe.matrix)
    for values in product(*recipe.matrix.values()):
        cell = dict(zip(recipe.matrix, values, strict=True))
        point = ",".join(f"{labels[axis]}={_text(value)}" for axis, value in cell.items())
        tables = {
            "model": _model_table(recipe),
            "target": recipe.target_table,
            "config": recipe.config,
            "toolchain": recipe.toolchain,
        }
        for name, said in _nested(cell).items():
            tables[name] = _merge_table(name, tables[name], said)
        model = tables["model"]
        yield recipe._replace(
            name=f"{recipe.name}[{point}]",
            matrix={},
            cell=cell,
            model_ref=model.get("ref"),
            revision=model.get("revision"),
            digests=model.get("digests", {}),
            facts=model.get("facts", {}),
            target_table=tables["target"],
            config=tables["config"],
            toolchain=tables["toolchain"],
        )


def find_cell(reference: str) -> Recipe | None:
    """The point of a matrix that `NAME[a=1,b=2]` or `FILE.toml[…]` names, as `expand` names it.

    None when the text before the bracket is no recipe.

    Raises:
        ConfigError: that recipe has no such point, with the nearest.
    """
    brackets = [at for at, letter in enumerate(reference) if letter == "["]
    end = next((at for at in brackets if find_recipe(reference[:at]) is not None), None)
    if end is None:
        return None
    recipe = load_recipe(reference[:end])
    cells = {cell.name.removeprefix(recipe.name): cell for cell in expand(recipe)}
    if reference[end:] in cells:
        return cells[reference[end:]]
    near = nearest(reference[end:], cells)
    command = f"`neuroncompile prewarm {recipe.path} --check` lists them"
    raise ConfigError(
        f"{recipe.path}: [matrix] has no point {reference[end:]}"
        if recipe.matrix
        else f"{recipe.path} has no [matrix], so {reference[end:]} names nothing",
        field="matrix",
        value=reference[end:],
        legal=list(cells),
        hint=f"did you mean '{reference[:end]}{near}'?" if near else command,
    )


def _axis_labels(matrix: Mapping[str, Any]) -> dict[str, str]:
    """`config.batch_size` → `batch_size`, or the whole name where two would look alike."""
    short = {axis: axis.rpartition(".")[2] for axis in matrix}
    names = list(short.values())
    return {axis: name if names.count(name) == 1 else axis for axis, name in short.items()}


def _text(value: Any) -> str:
    """A matrix value as it stands in names: text bare, everything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), sort_keys=True, default=str)


def _nested(cell: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Dotted names → tables: `{"a.b.c": 1}` → `{"a": {"b": {"c": 1}}}`."""
    tables: dict[str, Any] = {}
    for name, value in cell.items():
        for part in reversed(name.split(".")):
            value = {part: value}
        tables = _merge(tables, value)
    return tables


def _model_table(recipe: Recipe) -> dict[str, Any]:
    table = {
        "ref": recipe.model_ref,
        "revision": recipe.revision,
        "digests": recipe.digests,
        "facts": recipe.facts,
    }
    return {key: value for key, value in table.items() if value}


def _load_chain(path: Path, seen: tuple[Path, ...]) -> tuple[dict[str, Any], tuple[Path, ...]]:
    real = path.resolve()
    if real in seen:
        circle = " → ".join(file.name for file in (*seen[seen.index(real) :], real))
        raise _bad(path, f"extends itself: {circle}", "extends", "remove one extends")
    table = _read(path)
    extends = table.pop("extends", None)
    if extends is None:
        return table, ()
    parent = _parent(path, extends)
    base, ancestors = _load_chain(parent, (*seen, real))
    merged = dict(base)
    for name, child in table.items():
        merged[name] = _merge_table(name, base.get(name, {}), child)
    return merged, (parent, *ancestors)


def _parent(path: Path, extends: str) -> Path:
    beside = path.parent / (extends if extends.endswith(".toml") else f"{extends}.toml")
    parent = beside if beside.is_file() else find_recipe(extends)
    if parent is None:
        near = nearest(extends, [name for name, _ in list_recipes()])
        raise _bad(
            path,
            f"extends {extends!r}, and there is no such recipe",
            "extends",
            f"did you mean {near}?" if near else "neuroncompile recipes ls",
        )
    return parent


def _read(path: Path) -> dict[str, Any]:
    import tomllib  # a build without a recipe does not pay for it

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror}", None, f"check {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _bad(path, f"is not TOML: {error}", None, f"edit {path}") from None
    if table.pop("schema", None) != SCHEMA:
        raise _bad(path, "has no schema = 1", "schema", "begin the file with schema = 1")
    extends = table.get("extends", "")
    if not isinstance(extends, str):
        raise _bad(path, "extends must be text", "extends", 'for example extends = "base"')
    for name, body in table.items():
        if name != "extends":
            _check_table(path, name, body)
    return table


def _check_table(path: Path, name: str, body: Any) -> None:
    if name not in TABLES:
        raise _unknown(path, name, ["schema", "extends", *TABLES])
    if not isinstance(body, dict):
        raise _bad(path, f"[{name}] must be a table", name, f"write [{name}] on its own line")
    keys = TABLES[name]
    if keys is not None:
        _check_keys(path, name, body, keys)
    if name == "adapters":
        for adapter, entry in body.items():
            if not isinstance(entry, dict):
                raise _bad(path, f"[adapters.{adapter}] must be a table", name, f"edit {path}")
            _check_keys(path, f"adapters.{adapter}", entry, ADAPTER)
    if name == "matrix":
        _check_matrix(path, body)
    if name == "toolchain":
        for key, value in body.items():
            if not isinstance(value, str):
                raise _bad(path, f"toolchain.{key} must be text", f"toolchain.{key}", "quote it")


def _check_keys(path: Path, table: str, body: Mapping[str, Any], keys: Mapping[str, type]) -> None:
    for key, value in body.items():
        field = f"{table}.{key}"
        if key not in keys:
            raise _unknown(path, field, [f"{table}.{known}" for known in keys])
        if type(value) is not keys[key]:
            words = {str: "text", int: "a whole number", dict: "a table"}[keys[key]]
            raise _bad(path, f"{field} is {value!r}; it must be {words}", field, f"edit {path}")
        if key == "digests" and isinstance(value, dict):
            _check_digests(path, field, value)


def _check_digests(path: Path, field: str, digests: Mapping[str, Any]) -> None:
    for name, digest in digests.items():
        if name not in DIGESTS:
            raise _unknown(path, f"{field}.{name}", [f"{field}.{known}" for known in DIGESTS])
        text = str(digest)
        digits = text.removeprefix("sha256:")
        if not text.startswith("sha256:") or len(digits) != 64 or set(digits) - set(_HEX):
            raise _bad(
                path,
                f"{field}.{name} is no SHA-256 digest",
                f"{field}.{name}",
                'write "sha256:" and 64 lower-case hexadecimal digits',
            )


_HEX = "0123456789abcdef"


def _check_matrix(path: Path, matrix: Mapping[str, Any]) -> None:
    for name, values in matrix.items():
        table, dot, _ = name.partition(".")
        if not dot or table not in MATRIX_TABLES:
            raise _bad(
                path,
                f"matrix key {name!r} does not begin with one of {', '.join(MATRIX_TABLES)}",
                f"matrix.{name}",
                f'write "config.{name}" = [...]' if not dot else f"edit {path}",
            )
        if not isinstance(values, list) or not values:
            raise _bad(
                path,
                f"matrix key {name!r} must be a list with something in it",
                f"matrix.{name}",
                f'for example "{name}" = [1, 4]',
            )
        texts = [_text(value) for value in values]
        twice = next((text for text in texts if texts.count(text) > 1), None)
        if twice is not None:
            raise _bad(
                path,
                f"matrix key {name!r} has {twice} twice",
                f"matrix.{name}",
                "list each value once",
            )
        for value in values:
            for inner, body in _nested({name: value}).items():
                _check_table(path, inner, body)
    for outer, inner in combinations(sorted(matrix), 2):
        if inner.startswith(f"{outer}."):
            raise _bad(
                path,
                f"matrix keys {outer!r} and {inner!r} set the same values",
                f"matrix.{inner}",
                "leave one of them out",
            )


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[name] = _merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


_STARTS_ANEW = {"model": {"ref"}, "target": {"platform", "instance"}, "toolchain": {"sdk"}}
"""Table → keys that name another thing, with which nothing of the old one belongs."""


def _merge_table(name: str, base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    anew = _STARTS_ANEW.get(name, set()) & set(over)
    return dict(over) if anew else _merge(base, over)


def _not_found(name: str) -> ModelNotFoundError:
    known = [name for name, _ in list_recipes()]
    near = nearest(name.removesuffix(".toml").rpartition("/")[2], known)
    return ModelNotFoundError(
        f"no recipe {name!r}",
        hint=f"did you mean {near}?"
        if near
        else "neuroncompile recipes ls, or give org/name or ./",
        details={"recipe": name, "known": known, "suggestion": near},
    )


def _unknown(path: Path, field: str, known: list[str]) -> ConfigError:
    near = nearest(field, known)
    return ConfigError(
        f"{path}: unknown key {field!r}",
        field=field,
        value=field,
        legal=known,
        hint=f"did you mean {near}?" if near else f"legal: {', '.join(known)}",
        details={"file": str(path)},
    )


def _bad(path: Path, reason: str, field: str | None, hint: str) -> ConfigError:
    return ConfigError(f"{path}: {reason}", field=field, hint=hint, details={"file": str(path)})
