"""Toolchains: the frozen versions that identify a compiler, and where they come from.

Resolved in this order, never from the host that merely looks up: `--toolchain NAME|FILE`,
lock, the recipe's `[toolchain]`, the identity the caller knows (the cpu backend's own, or a
worker interpreter's). A host without any SDK computes the same key from the frozen file.

A frozen file is TOML, because it is the same table as a recipe's `[toolchain]`, is committed
beside recipes, and is read by people who compare versions:

    schema = 1
    name = "sdk-2.28"
    backend = "nxdi"
    python = "/opt/neuron/bin/python"     # optional, where it is installed; not in the key
    [packages]
    neuronx-cc = "2.23.6484.0+3b612583"

Named toolchains are such files in `$XDG_CONFIG_HOME/neuroncompile/toolchains/NAME.toml`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.config.recipe import Recipe
from neuroncompile.errors import ToolchainError, nearest

__all__ = [
    "Toolchain",
    "freeze",
    "frozen_text",
    "list_toolchains",
    "load_toolchain",
    "resolve_toolchain",
    "toolchain_directory",
]

BACKENDS = ("cpu", "nxdi")
FILE_KEYS = ("schema", "name", "backend", "python", "sdk", "packages")
PACKAGES = (
    "neuronx-cc",
    "neuronx-distributed-inference",
    "neuronx-distributed",
    "torch-neuronx",
    "torch-xla",
    "torch",
    "libneuronxla",
    "transformers",
    "nki",
    "nkilib",
    "graph_code",
)
"""Names a recipe may pin; the last is our own code for cpu. A frozen file may hold others."""


class Toolchain(NamedTuple):
    """Versions that identify a compiler.

    Attributes:
        name: for people ("sdk-2.28", "this environment"); never in a key.
        backend: "cpu" or "nxdi".
        packages: package → exact version with its `+local` part, or a window ("2.9.*").
        python: interpreter that holds them, or None on a host that only computes keys.
        origin: which layer chose it ("flag --toolchain", "recipe llama-3.1-8b-trn1", …).
    """

    name: str
    backend: str
    packages: Mapping[str, str]
    python: str | None = None
    origin: str = ""

    def spec(self) -> dict[str, str]:
        """The `toolchain` member of a spec: versions only."""
        return dict(sorted(self.packages.items()))

    def mismatches(self, installed: Mapping[str, str]) -> list[tuple[str, str, str | None]]:
        """(package, asked, installed) where what is installed is not what was asked for.

        A version asked without `+local` accepts any build of it; a window its prefix.
        """
        return [
            (name, asked, installed.get(name))
            for name, asked in sorted(self.packages.items())
            if not _accepts(asked, installed.get(name))
        ]


def resolve_toolchain(
    backend: str,
    *,
    flag: str | None = None,
    lock: Toolchain | None = None,
    recipe: Recipe | None = None,
    identity: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Toolchain:
    """The toolchain that enters the key.

    Args:
        backend: "cpu" or "nxdi".
        flag: `--toolchain`'s name or file, or the settings' one.
        lock: the lock file's, once there is one.
        recipe: its `[toolchain]` counts when it is for this backend, so that a Neuron recipe can
            be rehearsed on cpu.
        identity: package → version of the interpreter that would compile, empty if none.
        environ: where named toolchains are looked for; default the process's.

    Raises:
        ToolchainError: none, an unknown one, or one of the other backend.
    """
    if flag:
        chosen = load_toolchain(flag, origin="flag --toolchain", environ=environ)
        if chosen.backend != backend:
            raise ToolchainError(
                f"toolchain {chosen.name} is for the {chosen.backend} backend; "
                f"this target needs {backend}",
                field="toolchain",
                value=flag,
                legal=f"a toolchain of backend {backend}",
                hint="choose another --target or --toolchain",
            )
        return chosen
    if lock is not None and lock.backend == backend:
        return lock
    if recipe is not None and recipe.toolchain and _backend_of(recipe.toolchain) == backend:
        return _of_table(recipe.toolchain, recipe, backend)
    if identity:
        return Toolchain("this environment", backend, dict(identity), origin="this interpreter")
    raise _none(backend)


def load_toolchain(
    text: str, *, origin: str = "", environ: Mapping[str, str] | None = None
) -> Toolchain:
    """A frozen file by path, a named toolchain, or `sdk-2.28` from the release table.

    Raises:
        ToolchainError: unknown, unreadable or malformed.
    """
    if "/" in text or text.endswith(".toml"):
        return _load_file(Path(text).expanduser(), origin)
    path = toolchain_directory(environ) / f"{text}.toml"
    if path.is_file():
        return _load_file(path, origin)
    if text.startswith("sdk-"):
        from neuroncompile.config.releases import sdk_packages

        return Toolchain(text, "nxdi", sdk_packages(text[4:]), origin=origin)
    known = [*list_toolchains(environ), "sdk-2.28"]
    near = nearest(text, known)
    raise ToolchainError(
        f"no toolchain {text!r} in {path.parent}; known: {', '.join(known)}",
        field="toolchain",
        value=text,
        legal=known,
        hint=f"did you mean {near}?" if near else f"a file needs a path: ./{text}.toml",
    )


def list_toolchains(environ: Mapping[str, str] | None = None) -> list[str]:
    """Names of the toolchains in `toolchain_directory`."""
    return sorted(path.stem for path in toolchain_directory(environ).glob("*.toml"))


def toolchain_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Where named toolchains are."""
    env = os.environ if environ is None else environ
    base = env.get("XDG_CONFIG_HOME")
    root = Path(base) if base else Path(env.get("HOME") or Path.home()) / ".config"
    return root / "neuroncompile" / "toolchains"


def frozen_text(toolchain: Toolchain, *, with_python: bool = False) -> str:
    """The file's text.

    Args:
        with_python: write the interpreter's path, too, which names this machine.
    """
    python = toolchain.python if with_python else None
    lines = [
        "# The compiler's exact versions; they are part of every key.",
        "schema = 1",
        f"name = {_quote(toolchain.name)}",
        f"backend = {_quote(toolchain.backend)}",
        *([f"python = {_quote(python)}"] if python else []),
        "",
        "[packages]",
        *(f"{_quote(name)} = {_quote(version)}" for name, version in toolchain.spec().items()),
    ]
    return "\n".join(lines) + "\n"


def freeze(toolchain: Toolchain, path: Path, *, with_python: bool = False) -> None:
    """Write `frozen_text` to a file, whole or not at all.

    Raises:
        ToolchainError: the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(frozen_text(toolchain, with_python=with_python), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise ToolchainError(
            f"{path} cannot be written: {error.strerror}", hint="name another file with --output"
        ) from None


def _load_file(path: Path, origin: str) -> Toolchain:
    import tomllib  # only a frozen file pays for it

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ToolchainError(
            f"toolchain file {path} cannot be read: {error.strerror}",
            field="toolchain",
            value=str(path),
            hint=f"neuroncompile toolchain freeze -o {path}, where the compiler is installed",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _bad_file(path, str(error)) from None
    for key in table:
        if key not in FILE_KEYS:
            near = nearest(key, FILE_KEYS)
            raise _bad_file(path, f"unknown key {key!r}", f"did you mean {near}?" if near else None)
    if table.get("schema") != 1:
        raise _bad_file(path, f"schema is {table.get('schema')!r}; this version reads 1")
    packages = _versions(table.get("packages", {}), str(path))
    if "sdk" in table:
        from neuroncompile.config.releases import sdk_packages

        packages = sdk_packages(str(table["sdk"]), packages)
    backend = table.get("backend", _backend_of(packages))
    if backend not in BACKENDS:
        raise _bad_file(path, f"backend is {backend!r}; legal: {', '.join(BACKENDS)}")
    if not packages:
        raise _bad_file(path, "it names no packages")
    python = table.get("python")
    return Toolchain(
        str(table.get("name", path.stem)),
        backend,
        packages,
        python=str(python) if python else None,
        origin=origin,
    )


def _of_table(table: Mapping[str, str], recipe: Recipe, backend: str) -> Toolchain:
    """A recipe's `[toolchain]`: `sdk`, versions one by one, or both."""
    versions = _versions({k: v for k, v in table.items() if k != "sdk"}, str(recipe.path))
    for name in versions:
        if name not in PACKAGES:
            near = nearest(name, PACKAGES)
            raise ToolchainError(
                f"{recipe.path}: unknown package {name!r} under [toolchain]",
                field=f"toolchain.{name}",
                value=name,
                legal=["sdk", *PACKAGES],
                hint=f"did you mean {near}?" if near else f"legal: sdk, {', '.join(PACKAGES)}",
            )
    origin = f"recipe {recipe.name}"
    sdk = table.get("sdk")
    if sdk is None:
        return Toolchain(origin, backend, versions, origin=origin)
    from neuroncompile.config.releases import sdk_packages

    return Toolchain(f"sdk-{sdk}", backend, sdk_packages(sdk, versions), origin=origin)


def _versions(table: Any, where: str) -> dict[str, str]:
    """Package names in their canonical spelling, versions checked to be text."""
    if not isinstance(table, Mapping):
        raise ToolchainError(f"{where}: packages must be a table", hint=f"edit {where}")
    versions = {}
    for raw, version in table.items():
        spelling = raw.lower().replace("_", "-")
        name = spelling if spelling in PACKAGES else raw
        if not isinstance(version, str) or not version.strip():
            raise ToolchainError(
                f"{where}: the version of {raw} is {version!r}; it must be text",
                field=f"toolchain.{raw}",
                value=version,
                legal='for example "2.13.0"',
                hint=f"quote it in {where}",
            )
        versions[name] = version.strip()
    return versions


def _backend_of(table: Mapping[str, Any]) -> str:
    return "nxdi" if "sdk" in table or any("neuron" in name for name in table) else "cpu"


def _accepts(asked: str, installed: str | None) -> bool:
    if installed is None:
        return False
    if asked.endswith(".*"):
        return installed.startswith(asked[:-1])
    return asked == (installed if "+" in asked else installed.partition("+")[0])


def _quote(text: str) -> str:
    import json

    # A TOML basic string escapes as JSON does, except for surrogate pairs and DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _bad_file(path: Path, reason: str, hint: str | None = None) -> ToolchainError:
    return ToolchainError(
        f"toolchain file {path}: {reason}",
        field="toolchain",
        value=str(path),
        hint=hint or f"edit {path}, or write it again with toolchain freeze",
    )


def _none(backend: str) -> ToolchainError:
    if backend == "cpu":
        hint = 'pip install "neuroncompile[cpu]", or name a frozen file with --toolchain FILE'
    else:
        hint = 'name one with --toolchain sdk-2.28, or add sdk = "2.28" under [toolchain]'
    return ToolchainError(
        f"no toolchain names the {backend} compiler, and its versions are part of the key",
        field="toolchain",
        value=None,
        legal="--toolchain NAME|FILE, the recipe's [toolchain], or an interpreter that has it",
        hint=hint,
    )
