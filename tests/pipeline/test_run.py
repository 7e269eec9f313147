"""`run` from prompt to text, on a real program."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.conftest import ROOT, SMALL, Done, Run, write_llama

DOCUMENT: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["schema", "command", "exit_code", "result", "warnings", "error"],
    "properties": {
        "schema": {"const": 1},
        "command": {"type": "string"},
        "exit_code": {"type": "integer"},
        "warnings": {"type": "array", "items": {"type": "string"}},
        "result": {},
        "error": {
            "oneOf": [
                {"type": "null"},
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["type", "message", "hint", "details"],
                    "properties": {
                        "type": {"type": "string"},
                        "message": {"type": "string"},
                        "hint": {"type": ["string", "null"]},
                        "details": {"type": "object"},
                    },
                },
            ]
        },
    },
}
ORIGIN = {
    "type": "object",
    "required": ["value", "origin"],
    "additionalProperties": False,
    "properties": {"value": {}, "origin": {"type": "string"}},
}
RESULT: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": [
        *("key", "backend", "target", "model", "hit", "source", "tier", "compiled", "completions"),
        "sampler",
    ],
    "properties": {
        "key": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "backend": {"const": "cpu"},
        "target": {"type": "object"},
        "model": {"type": "string"},
        "hit": {"type": "boolean"},
        "source": {"enum": ["store", "tier", "compiler"]},
        "tier": {"type": ["string", "null"]},
        "compiled": {"type": "array", "items": {"type": "string"}},
        "sampler": {"const": "host"},
        "completions": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": [
                    "index",
                    "prompt_tokens",
                    "tokens",
                    "text",
                    "finish_reason",
                    "stop_reason",
                    "ttft_s",
                    "tpot_s",
                    "sampling",
                ],
                "properties": {
                    "index": {"type": "integer"},
                    "prompt_tokens": {"type": "integer", "minimum": 1},
                    "tokens": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
                    "text": {"type": "string"},
                    "finish_reason": {"enum": ["stop", "length"]},
                    "stop_reason": {"type": ["integer", "string"]},
                    "ttft_s": {"type": "number", "exclusiveMinimum": 0},
                    "tpot_s": {"type": ["number", "null"]},
                    "sampling": {"type": "object", "additionalProperties": ORIGIN},
                },
            },
        },
    },
}


@pytest.fixture
def tiny(run: Run, llama: Path, store_root: Path, built_key: str) -> Any:
    def call(*args: str, **options: Any) -> Done:
        return run("run", str(llama), *SMALL, "--store", str(store_root), *args, **options)

    return call


def tokens(done: Done) -> list[int]:
    assert done.code == 0, done.out + done.err
    found: list[int] = done.document["result"]["completions"][0]["tokens"]
    return found


def test_json_on_success_has_its_shape(tiny: Any, built_key: str) -> None:
    done = tiny("the cat", "--max-new-tokens=5", "--json")
    document = done.document
    jsonschema.validate(document, DOCUMENT)
    jsonschema.validate(document["result"], RESULT)
    assert (document["command"], document["error"]) == ("run", None)
    assert document["result"]["key"] == built_key
    assert document["result"]["hit"] is True
    assert len(tokens(done)) == 5


def test_json_on_error_has_its_shape(tiny: Any) -> None:
    done = tiny("the cat " * 40, "--json")
    document = done.document
    jsonschema.validate(document, DOCUMENT)
    assert (done.code, document["exit_code"], document["result"]) == (10, 10, None)
    assert document["error"]["type"] == "PromptTooLongError"


def test_greedy_equals_transformers(tiny: Any, llama: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    done = tiny("the cat sat", "--max-new-tokens=30", "--json")
    completion = done.document["result"]["completions"][0]
    model = AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32)
    from neuroncompile.runtime.tokenizer import Tokenizer

    ids = Tokenizer(llama).encode("the cat sat")
    assert completion["prompt_tokens"] == len(ids)
    expected = model.generate(torch.tensor([ids]), max_new_tokens=30, do_sample=False)
    assert completion["tokens"] == expected[0, len(ids) :].tolist()


def test_text_on_stdout_and_nothing_else(tiny: Any) -> None:
    plain = tiny("the cat", "--max-new-tokens=8")
    document = tiny("the cat", "--max-new-tokens=8", "--json").document
    assert plain.out == document["result"]["completions"][0]["text"] + "\n"
    assert "\x1b[" not in plain.out + plain.err
    assert "cpu backend" in plain.err


@pytest.mark.parametrize("dash", [(), ("-",)])
def test_prompt_on_stdin(tiny: Any, dash: tuple[str, ...]) -> None:
    piped = tiny(*dash, "--max-new-tokens=6", "--json", stdin="the cat\n")
    assert tokens(piped) == tokens(tiny("the cat", "--max-new-tokens=6", "--json"))


def test_same_seed_same_tokens_and_another_seed_others(tiny: Any) -> None:
    def sampled(seed: int) -> list[int]:
        return tokens(
            tiny("the", "--temperature=1.5", f"--seed={seed}", "--max-new-tokens=20", "--json")
        )

    assert sampled(1) == sampled(1)
    assert sampled(1) != sampled(2)


def test_effective_sampling_with_origins(tiny: Any) -> None:
    done = tiny("the", "--top-k=5", "--max-new-tokens=2", "--json")
    sampling = done.document["result"]["completions"][0]["sampling"]
    assert sampling["top_k"] == {"value": 5, "origin": "flag"}
    assert sampling["temperature"] == {"value": 1.0, "origin": "default"}
    assert sampling["seed"]["origin"] == "drawn"


def test_the_compiled_length_cuts_with_a_warning(tiny: Any) -> None:
    done = tiny("the cat sat on the mat, the cat", "--json")
    completion = done.document["result"]["completions"][0]
    assert (completion["finish_reason"], completion["stop_reason"]) == ("length", "seq_len")
    assert completion["prompt_tokens"] + len(completion["tokens"]) == 64
    assert "compiled length of 64" in done.document["warnings"][0]


def test_prompts_file_answers_in_input_order(
    run: Run, llama: Path, store_root: Path, tiny: Any, tmp_path: Path
) -> None:
    asks = tmp_path / "asks.jsonl"
    rows = [
        {"prompt": "the cat", "max_new_tokens": 12},
        {"prompt": "on the mat", "max_new_tokens": 2},
        {"prompt": "end", "temperature": 1.2, "seed": 5, "max_new_tokens": 7},
        {"messages": [{"role": "user", "content": "sat"}], "max_new_tokens": 4},
    ]
    asks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run(
        *("run", str(llama), *SMALL, "--batch-size=3", "--store", str(store_root)),
        *("--prompts", str(asks)),
    )
    assert done.code == 0, done.err
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [a["index"] for a in answers] == [0, 1, 2, 3]
    for row, answer in list(zip(rows, answers, strict=True))[:3]:
        options = [f"--{k.replace('_', '-')}={v}" for k, v in row.items() if k != "prompt"]
        assert answer["tokens"] == tokens(tiny(str(row["prompt"]), *options, "--json"))
    chat = tiny("sat", "--chat", "--max-new-tokens=4", "--json")
    assert answers[3]["tokens"] == tokens(chat)


def test_a_stop_string_does_not_show(tiny: Any) -> None:
    text = tiny("the cat", "--max-new-tokens=20").out
    stop = text[4:6]
    done = tiny("the cat", "--max-new-tokens=20", "--stop", stop)
    assert done.out == text[: text.index(stop)] + "\n"


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("x", "--temperature=-1"), 5, "temperature is -1"),
        (("x", "--top-k=257"), 5, "1 to 256"),
        (("x", "--top-p=1.1"), 5, "top_p is 1.1"),
        (("x", "--max-new-tokens=0"), 5, "max_new_tokens is 0"),
        (("x", "--prompts=none.jsonl"), 2, "exclude each other"),
        (("--prompts=none.jsonl",), 2, "No such file"),
        (("x", "--system=be kind"), 2, "--system is for --chat"),
        (("x", "--chat-template=none.jinja"), 2, "--chat-template is for --chat"),
        (("x", "--chat", "--chat-template=none.jinja"), 2, "cannot be read"),
        (("the cat " * 40,), 10, "takes at most 63"),
    ],
)
def test_bad_input(tiny: Any, args: tuple[str, ...], code: int, message: str) -> None:
    done = tiny(*args)
    assert done.code == code, done.err
    assert message in done.err
    assert "Traceback" not in done.err


def test_chat_without_a_template_is_one_line(run: Run, tmp_path: Path) -> None:
    directory = write_llama(tmp_path / "base")
    (directory / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    done = run("run", str(directory), *SMALL, "--store", str(tmp_path / "s"), "hi", "--chat")
    assert done.code == 4
    assert done.err.splitlines()[0] == "error: this model has no chat template"
    assert "--chat-template" in done.err
    assert not (tmp_path / "s" / "v1").exists(), "said before anything was compiled"


def test_require_cached_refuses_to_compile(run: Run, llama: Path, tmp_path: Path) -> None:
    done = run("run", str(llama), *SMALL, "--store", str(tmp_path), "x", "--require-cached")
    assert done.code == 3
    assert "run the same command without --require-cached" in done.err


def test_a_prompt_that_cannot_fit_is_refused_before_a_compile(
    run: Run, llama: Path, tmp_path: Path
) -> None:
    store = tmp_path / "s"
    done = run("run", str(llama), *SMALL, "--store", str(store), "the cat " * 40)
    assert done.code == 10
    assert "takes at most 63" in done.err
    assert not (store / "v1").exists()


def test_a_reader_that_has_gone_changes_no_exit_code(llama: Path, store_root: Path) -> None:
    command = f"{sys.executable} -m neuroncompile"
    for args in ("recipes ls", f"build {llama} --seq-len=8 --check --store {store_root}"):
        done = subprocess.run(
            ["bash", "-c", f"{command} {args} | true; echo ${{PIPESTATUS[0]}}"],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert done.stdout.strip() == ("0" if args == "recipes ls" else "3"), done.stderr


def test_numbers_json_does_not_have_are_text(tiny: Any) -> None:
    done = tiny("x", "--temperature=nan", "--json")
    assert done.code == 5
    assert "NaN" not in done.out
    assert done.document["error"]["details"]["value"] == "nan"


def test_an_interactive_session(llama: Path, store_root: Path, built_key: str) -> None:
    """A terminal of its own: two lines in, two answers out, Ctrl-D ends."""
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(PYTHONPATH=str(ROOT), TERM="dumb")
        argv = [sys.executable, "-m", "neuroncompile", "run", str(llama), *SMALL]
        os.execv(sys.executable, [*argv, "--store", str(store_root), "--max-new-tokens=3"])
    shown = b""
    for answer in (b"the cat\n", b"on the mat\n", b"\x04", b""):
        seen = len(shown)
        while answer and b"> " not in shown[seen:]:
            assert select.select([terminal], [], [], 60)[0], shown
            shown += os.read(terminal, 4096)
        os.write(terminal, answer)
    with contextlib.suppress(OSError):  # the other side closes
        while select.select([terminal], [], [], 60)[0] and (piece := os.read(terminal, 4096)):
            shown += piece
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, shown
    assert b"Ctrl-D ends" in shown
