"""Chat templates, against transformers' own rendering."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import ModelError, UsageError
from neuroncompile.runtime.chat import chat_template, render
from neuroncompile.runtime.tokenizer import Tokenizer
from tests.runtime.conftest import byte_level

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be <brief> & 'kind'."},
    {"role": "user", "content": "Hi\n"},
    {"role": "assistant", "content": "Hello.", "name": None, "reasoning": "polite"},
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
    "mistral": "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}"
    "{% elif message['role'] == 'system' %}{{ '<<SYS>>' ~ message.content ~ '<</SYS>>' }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}"
    "{% endif %}{% endfor %}",
    "llama3": "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "qwen": "{%- if tools %}\n    {{- 'tools' }}\n{%- else %}\n"
    "    {%- if messages[0]['role'] == 'system' %}\n"
    "        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}\n"
    "    {%- endif %}\n{%- endif %}\n"
    "{%- set ns = namespace(multi_step_tool=true, last=messages|length - 1) %}\n"
    "{%- for message in messages[::-1] %}\n"
    "    {%- set index = (messages|length - 1) - loop.index0 %}\n"
    "    {%- if ns.multi_step_tool and message.role == 'user' and not"
    " (message.content.startswith('<tool') and message.content.endswith('>')) %}\n"
    "        {%- set ns.multi_step_tool = false %}\n        {%- set ns.last = index %}\n"
    "    {%- endif %}\n{%- endfor %}\n{{- ns.last }}\n"
    "{%- for message in messages %}\n"
    "    {%- if message.reasoning_content is defined and message.reasoning_content is not none %}"
    "\n        {{- '<think>' + message.reasoning_content + '</think>' }}\n    {%- endif %}\n"
    "    {{- message.role + ': ' + message.content.split('</think>')[-1].lstrip('\n') }}\n"
    "{%- endfor %}",
    "date": "{{ strftime_now('%Y') }}{{ dict(a=1).a }}{{ pad_token is defined }}",
    "names": "{% for m in messages %}{{ m.name | default('nobody') }}{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}"
    "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }} {{ tools is none }}",
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=byte_level(), **SPECIAL)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("prompt", [True, False])
def test_as_transformers_renders(theirs: Any, name: str, prompt: bool) -> None:
    expected = theirs.apply_chat_template(
        MESSAGES, chat_template=TEMPLATES[name], add_generation_prompt=prompt, tokenize=False
    )
    assert render(TEMPLATES[name], MESSAGES, SPECIAL, add_generation_prompt=prompt) == expected


def test_as_transformers_tokenizes(theirs: Any, tokenizer: Tokenizer) -> None:
    """One beginning of sequence, the template's own; the raw prompt has one as well."""
    template = TEMPLATES["mistral"]
    ids = tokenizer.encode(
        render(template, MESSAGES, tokenizer.special_tokens), add_special_tokens=False
    )
    encoded = theirs.apply_chat_template(MESSAGES, chat_template=template)
    assert ids == list(encoded["input_ids"])
    assert ids.count(0) == 1
    assert tokenizer.encode("naïve").count(0) == 1


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('only user') }}", "only user"),
        ("{% for %}", "Expected"),
        ("{{ messages[0].content.missing.deeper }}", "has no attribute"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% set ns = namespace() %}{% set ns.__class__ = 1 %}", "cannot hold|unsafe"),
        ("{{ dict.mro() }}", "mro|unsafe"),
        ("{{ 1 // 0 }}", "zero"),
        ("{{ raise_exception('two\nlines') }}", "two lines"),
        ("{{ messages.append(1) }}", "not safely callable|immutable|unsafe"),
    ],
)
def test_templates_that_fail_are_one_line(template: str, message: str) -> None:
    with pytest.raises(ModelError, match=f"the chat template fails: .*({message})") as caught:
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
