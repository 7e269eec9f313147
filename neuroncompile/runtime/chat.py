"""Chat templates, rendered as transformers renders them, in jinja2's sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neuroncompile.errors import ModelError, UsageError

__all__ = ["chat_template", "render"]


def chat_template(tokenizer_dir: Path | None, override: Path | None = None) -> str:
    """The template of a checkpoint, or the user's own file.

    Looks where transformers does: `chat_template.jinja`, then `chat_template` in
    tokenizer_config.json (a text, or a list of named ones, of which "default" counts).

    Raises:
        UsageError: the override cannot be read.
        ModelError: the model has no template.
    """
    if override is not None:
        try:
            return override.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--chat-template {override} cannot be read: {error}") from None
    if tokenizer_dir is not None:
        try:
            return (tokenizer_dir / "chat_template.jinja").read_text(encoding="utf-8")
        except OSError:
            pass
        found = _from_config(tokenizer_dir / "tokenizer_config.json")
        if found is not None:
            return found
    raise ModelError(
        "this model has no chat template",
        hint="leave out --chat for a raw prompt, or give one with --chat-template FILE",
    )


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    special_tokens: Mapping[str, str],
    *,
    add_generation_prompt: bool = True,
) -> str:
    """The text of a chat, ready to be encoded without further special tokens.

    Args:
        special_tokens: bos_token, eos_token, … that templates may name.

    Raises:
        ModelError: the template is malformed or refuses these messages.
    """
    try:
        text: str = (
            _environment()
            .from_string(template)
            .render(
                messages=[_message(m) for m in messages],
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **special_tokens,
            )
        )
    except Exception as error:  # a template is a program: it may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(
            f"the chat template fails: {reason}",
            hint="check the roles and their order, or give another with --chat-template FILE",
        ) from None
    return text


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A copy as transformers hands it to templates.

    Without keys that are None, which templates would print or trip over, and with a message's
    reasoning under every name that templates read it by.
    """
    found = {key: value for key, value in message.items() if value is not None}
    names = ("reasoning_content", "thinking", "reasoning")
    reasoning = next((found[name] for name in names if name in found), None)
    if reasoning is None:
        return found
    return {"thinking": reasoning, **found, "reasoning_content": reasoning}


def _environment() -> Any:
    from jinja2.exceptions import SecurityError, TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Generation(Extension):
        """`{% generation %}` marks what training learns from; rendering passes it through."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class PlainNamespace(Namespace):
        """jinja2's, but without names that reach into Python."""

        def __setitem__(self, name: str, value: Any) -> None:
            if name.startswith("_"):
                raise SecurityError(f"a namespace cannot hold {name!r}")
            super().__setitem__(name, value)

    def plain_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        # jinja2's own escapes HTML, which is not wanted in a prompt.
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def strftime_now(form: str) -> str:
        from datetime import datetime

        return datetime.now().strftime(form)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    environment.globals["dict"] = plain_dict  # the class itself would let a template at `type`
    environment.globals["namespace"] = PlainNamespace
    return environment


def _from_config(path: Path) -> str | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError):
        return None
    if isinstance(value, list):
        named = {t.get("name"): t.get("template") for t in value if isinstance(t, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None
