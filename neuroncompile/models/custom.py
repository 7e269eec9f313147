"""A model class that the user brings: `--model-class PATH_OR_MODULE:Class`.

NxDI's repository alone has dozens of models outside its registry. The class is named by the
user, on the command line or in a recipe given as a path, never by data. It is not imported here:
its source is parsed, and its digest enters the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.errors import ConfigError, ModelError
from neuroncompile.models.families import Architecture, architecture_of

__all__ = ["CustomClass", "common_names", "custom_architecture", "read_class"]

FIELD = "model.class"


class CustomClass(NamedTuple):
    """A class whose source is at hand.

    Attributes:
        name: of the class.
        source: file or package directory, absolute; a place of this host, never in a key.
        digest: SHA-256, 64 hex digits, of the file or of the package's Python files.
    """

    name: str
    source: Path
    digest: str

    def spec(self) -> dict[str, str]:
        """What enters a key."""
        return {"class": self.name, "source": f"sha256:{self.digest}"}


def read_class(text: str, base: Path | None = None) -> CustomClass:
    """Find the class and digest its source, without running any of it.

    Args:
        text: "path/to/file.py:Class", "path/to/package:Class" or "module.name:Class".
        base: where a relative path starts; the working directory without it.

    Raises:
        ConfigError: not of that form, no such file or module, not Python, or no such class.
    """
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise _refused(
            text,
            f"{text!r} names no class",
            "PATH_OR_MODULE:Class, for example ./modeling_mine.py:NeuronMineForCausalLM",
        )
    source = _source(text, place, base)
    files = [source] if source.is_file() else sorted(source.rglob("*.py"))
    if not any(_defines(file, name, text) for file in files):
        known = sorted({c for file in files for c in _classes(file, text)})
        from neuroncompile.errors import nearest

        near = nearest(name, known)
        raise _refused(
            text,
            f"{place} defines no class {name}",
            known or "a file with a class in it",
            f"did you mean {near}?" if near else f"its classes: {', '.join(known) or 'none'}",
        )
    return CustomClass(name, source, _digest(source, files))


def custom_architecture(config: Mapping[str, Any], custom: CustomClass) -> Architecture:
    """The architecture of a model with a class of the user's.

    A config of a supported family keeps that family's defaults; another one keeps its own names.
    """
    try:
        known = architecture_of(config)
    except ModelError:
        pass
    else:
        return known._replace(nxdi=f"{custom.source}:{custom.name}", cpu=False)
    names = config.get("architectures")
    names = [names] if isinstance(names, str) else names
    first = names[0] if isinstance(names, (list, tuple)) and names else custom.name
    model_type = config.get("model_type")
    family = model_type if isinstance(model_type, str) and model_type else "custom"
    return Architecture(str(first), family, f"{custom.source}:{custom.name}", False, (family,))


_ALIASES = (
    ("hidden_size", ("n_embd", "d_model")),
    ("num_attention_heads", ("n_head", "n_heads", "num_heads")),
    ("num_hidden_layers", ("n_layer", "n_layers", "num_layers")),
    ("max_position_embeddings", ("n_positions", "n_ctx", "max_seq_len", "seq_length")),
    ("intermediate_size", ("n_inner", "ffn_hidden_size", "ffn_dim")),
    ("num_key_value_heads", ("num_kv_heads", "n_head_kv", "kv_n_heads", "multi_query_group_num")),
    ("rms_norm_eps", ("layer_norm_epsilon", "norm_epsilon")),
)


def common_names(result: dict[str, Any]) -> None:
    """Give a config of another family (gpt2's, Falcon's, ChatGLM's, …) the usual names, in place.

    `multi_query` without a number of key-value heads means one, except with Falcon's newer
    layout, which has its own number.
    """
    for wanted, names in _ALIASES:
        for name in names:
            value = result.get(name)
            if value is not None and result.get(wanted) in (None, value):
                result[wanted] = result.pop(name)
    one = result.get("multi_query") is True and not result.get("new_decoder_architecture")
    if one and result.get("num_key_value_heads") is None:
        result["num_key_value_heads"] = 1


def _source(text: str, place: str, base: Path | None) -> Path:
    path = Path(place).expanduser()
    if base is not None and not path.is_absolute():
        path = base / path
    if path.exists():
        return path.resolve()
    if "/" in place or place.endswith(".py"):
        raise _refused(text, f"no such file: {place}", "a .py file or a package directory")
    found = _module(place)
    if found is None:
        raise _refused(
            text,
            f"no module {place} can be found",
            "a module on the Python path",
            "name its file instead: path/to/file.py:Class",
        )
    return found


def _module(name: str) -> Path | None:
    """The file of a module, found along the path without importing its parents."""
    import sys

    parts = name.split(".")
    for entry in sys.path:
        stem = Path(entry or ".").joinpath(*parts)
        for file in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py"):
            if file.is_file():
                return (stem if file.name == "__init__.py" else file).resolve()
    return None


def _classes(file: Path, text: str) -> list[str]:
    import ast

    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except OSError as error:
        raise _refused(text, f"{file} cannot be read: {error.strerror}", "a file") from None
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _refused(text, f"{file} is not Python: {reason}", "Python source") from None
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def _defines(file: Path, name: str, text: str) -> bool:
    return name in _classes(file, text)


def _digest(source: Path, files: list[Path]) -> str:
    from hashlib import sha256

    if source.is_file():
        return sha256(source.read_bytes()).hexdigest()
    whole = sha256()
    for file in files:  # names inside the package matter to imports, its own place does not
        name = file.relative_to(source).as_posix()
        whole.update(f"{name}\0{sha256(file.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()


def _refused(value: str, message: str, legal: Any, hint: str | None = None) -> ConfigError:
    wanted = ", ".join(legal) if isinstance(legal, list) else legal
    return ConfigError(
        f"--model-class: {message}",
        field=FIELD,
        value=value,
        legal=legal,
        hint=hint or f"give {wanted}",
    )
