"""`toolchain ls|show|freeze`: which compilers can be named, and what they are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuroncompile.backends import backend_for
from neuroncompile.config import (
    Toolchain,
    find_recipe,
    freeze,
    frozen_text,
    load_recipe,
    load_toolchain,
    resolve_toolchain,
)
from neuroncompile.errors import NeuronCompileError, ToolchainError, UsageError
from neuroncompile.hardware.targets import parse_target
from neuroncompile.output import Output
from neuroncompile.settings import Settings

__all__ = ["toolchain_freeze_command", "toolchain_ls_command", "toolchain_show_command"]

NEWER_CHIPS = (2, 29)
"""The first SDK whose NxD Inference runs trn2 and newer only (its release notes)."""


def toolchain_ls_command(settings: Settings, output: Output) -> int:
    """The named ones, this interpreter's, and the SDKs of the release table."""
    from neuroncompile.config.releases import RELEASES, sdk_packages
    from neuroncompile.config.toolchain import list_toolchains, toolchain_directory

    rows: list[dict[str, Any]] = []
    for name in list_toolchains():
        try:
            found = load_toolchain(name)
        except NeuronCompileError as error:
            output.warn(f"{name}: {error}")
            continue
        rows.append(_row(found, str(toolchain_directory() / f"{name}.toml")))
    for platform in ("cpu", "trn2"):
        backend = backend_for(platform)
        python = settings.neuron_python if backend.name == "nxdi" else None
        try:
            identity = backend.identity(python)
        except ToolchainError as error:
            output.warn(str(error))
            continue
        if identity:
            here = Toolchain("this interpreter", backend.name, identity, python=python)
            rows.append(_row(here, python or "this interpreter"))
    for version in RELEASES:
        sdk = Toolchain(f"sdk-{version}", "nxdi", sdk_packages(version))
        numbers = tuple(int(part) for part in version.split(".")[:2])
        targets = "trn2, trn3" if numbers >= NEWER_CHIPS else "trn1, trn1n, inf2, trn2"
        rows.append({**_row(sdk, "release table"), "targets": targets})
    output.table(
        ("TOOLCHAIN", "BACKEND", "COMPILER", "NXDI", "TARGETS", "FROM"),
        [
            (
                row["name"],
                row["backend"],
                row["compiler"],
                row["packages"].get("neuronx-distributed-inference", "-"),
                row["targets"] or "-",
                row["from"],
            )
            for row in rows
        ],
    )
    output.note("an SDK of the release table names windows; a compile needs `toolchain freeze`")
    output.result(rows)
    return 0


def _row(toolchain: Toolchain, source: str) -> dict[str, Any]:
    packages = toolchain.spec()
    name = "neuronx-cc" if toolchain.backend == "nxdi" else "torch"
    return {
        "name": toolchain.name,
        "backend": toolchain.backend,
        "compiler": f"{name} {packages.get(name, '?')}",
        "packages": packages,
        "python": toolchain.python,
        "targets": "cpu" if toolchain.backend == "cpu" else "",
        "from": source,
    }


def toolchain_show_command(
    name: str | None, target: str, settings: Settings, output: Output
) -> int:
    """Package versions of one toolchain."""
    toolchain = _toolchain(name, target, settings)
    output.note(f"{toolchain.name} ({toolchain.backend}; {toolchain.origin})")
    output.table(("PACKAGE", "VERSION"), sorted(toolchain.packages.items()))
    output.result(
        {
            "name": toolchain.name,
            "backend": toolchain.backend,
            "origin": toolchain.origin,
            "packages": toolchain.spec(),
        }
    )
    return 0


def toolchain_freeze_command(
    name: str | None,
    target: str,
    out: str | None,
    settings: Settings,
    output: Output,
    *,
    python: str | None = None,
    as_name: str | None = None,
) -> int:
    """Write one toolchain's versions to a file, or print them.

    Args:
        python: interpreter whose toolchain is meant.
        as_name: write it among this user's named ones, with the interpreter's path.
    """
    if python is not None and name is not None:
        raise UsageError("--python and NAME exclude each other", hint="leave one of them out")
    if as_name is not None and out is not None:
        raise UsageError("--name and --output exclude each other", hint="leave one of them out")
    if python is not None:
        toolchain = _of_interpreter(python)
    else:
        toolchain = _toolchain(name, target, settings)
    path = None
    if as_name is not None:
        from neuroncompile.config.toolchain import toolchain_directory

        path = toolchain_directory() / f"{as_name}.toml"
        toolchain = toolchain._replace(name=as_name)
    elif out is not None:
        path = Path(out)
    if path is None:
        output.stream(frozen_text(toolchain))
    else:
        freeze(toolchain, path, with_python=as_name is not None)
        output.note(f"wrote {path}")
    output.result(
        {
            "path": str(path) if path else None,
            "backend": toolchain.backend,
            "python": toolchain.python,
            "packages": toolchain.spec(),
        }
    )
    return 0


def _of_interpreter(python: str) -> Toolchain:
    path = str(Path(python).expanduser().absolute())  # a venv's link is its identity
    packages = backend_for("trn2").identity(path)
    if not packages:
        raise ToolchainError(
            f"{python} has no Neuron SDK",
            field="toolchain.python",
            value=python,
            legal="an interpreter with neuronx-cc and NxD Inference",
            hint=f"install it there: {python} -m pip install neuronx-cc … (README, On Neuron)",
        )
    return Toolchain("frozen", "nxdi", packages, python=path, origin=path)


def _toolchain(name: str | None, target: str, settings: Settings) -> Toolchain:
    name = name or settings.toolchain
    recipe = load_recipe(name) if name and find_recipe(name) else None
    if name and recipe is None:
        return load_toolchain(name, origin="named")
    wanted = recipe.target if recipe is not None and recipe.target else parse_target(target)
    backend = backend_for(wanted.platform)
    return resolve_toolchain(
        backend.name, recipe=recipe, identity=backend.identity(settings.neuron_python)
    )
