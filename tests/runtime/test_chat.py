"""Chat templates, against transformers' own rendering."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import ModelError, UsageError
from neuroncompile.runtime.chat import chat_template, render

MESSAGES = [
    {"role": "system", "content": "Be <brief> & 'kind'."},
    {"role": "user", "content": "Hi\n"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "naïve 🎉?"},
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

TEMPLATES = {
    "chatml": "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}",
    "blocks": "{{ bos_token }}\n{% for m in messages %}\n    {% if m.role == 'user' %}\n"
    "[INST] {{ m.content | trim }} [/INST]\n    {% elif m.role == 'assistant' %}\n"
    "{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}\n    {% endif %}\n"
    "{% endfor %}",
    "controls": "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
    "{{ m | tojson }}{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}",
    "indented": "{{ messages | tojson(indent=2) }}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}"
    "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }} {{ tools is none }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("prompt", [True, False])
def test_as_transformers_renders(name: str, prompt: bool) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    expected, _ = render_jinja_template(
        conversations=[MESSAGES],
        chat_template=TEMPLATES[name],
        add_generation_prompt=prompt,
        **SPECIAL,
    )
    found = render(TEMPLATES[name], MESSAGES, SPECIAL, add_generation_prompt=prompt)
    assert found == expected[0]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('only user') }}", "only user"),
        ("{% for %}", "Expected"),
        ("{{ messages[0].content.missing.deeper }}", "has no attribute"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "not safely callable|immutable|unsafe"),
    ],
)
def test_templates_that_fail_are_one_line(template: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        render(template, MESSAGES, SPECIAL)
    assert "\n" not in str(caught.value)


def write(tmp_path: Path, config: Any) -> Path:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_where_a_template_is_found(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no chat template") as caught:
        chat_template(write(tmp_path, {}))
    assert "--chat-template" in (caught.value.hint or "")
    assert chat_template(write(tmp_path, {"chat_template": "one"})) == "one"
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert chat_template(write(tmp_path, {"chat_template": named})) == "d"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert chat_template(tmp_path) == "file"
    mine = tmp_path / "mine.jinja"
    mine.write_text("mine")
    assert chat_template(tmp_path, mine) == "mine"
    with pytest.raises(UsageError):
        chat_template(tmp_path, tmp_path / "none")
