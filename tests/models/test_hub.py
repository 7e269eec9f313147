"""The Hub, through its real client, against a server on this machine."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neuroncompile import models
from neuroncompile.errors import (
    GatedModelError,
    ModelError,
    ModelNotFoundError,
    NetworkError,
    NeuronCompileError,
    NotCachedError,
    StoreError,
)
from neuroncompile.settings import HubSettings, Settings
from tests.conftest import Run
from tests.models.conftest import CONFIG
from tests.models.hub_server import Hub, serve

TOKEN = "hf_" + "s3cretS3cretS3cretS3cretS3cretS3cr"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve() as hub:
        yield hub


@pytest.fixture
def settings(tmp_path: Path, hub: Hub) -> Settings:
    return Settings(
        store=tmp_path / "store",
        store_origin="test",
        offline=False,
        hub=HubSettings(endpoint=hub.endpoint, cache=tmp_path / "hub"),
        cache=tmp_path / "cache",
    )


def with_token(settings: Settings, token: str = TOKEN) -> Settings:
    return replace(settings, hub=replace(settings.hub, token=token))


def offline(settings: Settings) -> Settings:
    return replace(settings, offline=True)


def tensors(dtype: str = "float16", **shapes: tuple[int, ...]) -> bytes:
    import torch
    from safetensors.torch import save

    return save({n: torch.ones(s, dtype=getattr(torch, dtype)) for n, s in shapes.items()})


def files(weights: bytes | None = None, **config: Any) -> dict[str, bytes]:
    return {
        "config.json": json.dumps(CONFIG | config).encode(),
        "generation_config.json": b'{"eos_token_id": 7}',
        "tokenizer.json": b"{}",
        "tokenizer_config.json": b'{"chat_template": "{{ messages }}"}',
        "README.md": b"# read me",
        SINGLE: tensors(a=(4, 4)) if weights is None else weights,
    }


def sharded() -> dict[str, bytes]:
    first, second = tensors("bfloat16", a=(4, 4)), tensors("bfloat16", b=(2, 4))
    table = {"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}
    repo = files() | {SHARDS[0]: first, SHARDS[1]: second, INDEX: json.dumps(table).encode()}
    del repo[SINGLE]
    return repo


def settle() -> None:
    time.sleep(0.03)  # files changed just now are hashed again


def weight_requests(hub: Hub) -> list[str]:
    return [r for r in hub.requests if r.startswith("GET /cdn/")]


def test_small_files_first_and_weights_on_demand(hub: Hub, settings: Settings) -> None:
    repo = hub.repo("org/m", content := files())
    calls: list[str] = []
    model = models.resolve(
        "org/m", settings, before_download=lambda: calls.append("before download")
    )
    sha = repo.branches["main"]
    assert calls == ["before download"]
    assert (model.source, model.revision, model.name) == ("hub", sha, f"org/m@{sha[:7]}")
    assert model.config == CONFIG
    assert model.generation_config == {"eos_token_id": 7}
    assert model.chat_template == "{{ messages }}"
    assert model.tokenizer_dir is not None
    assert (model.tokenizer_dir / "tokenizer.json").read_bytes() == b"{}"
    assert model.dtype == "float16"
    (weight,) = model.weights
    digest = sha256(content[SINGLE]).hexdigest()
    assert (weight.name, weight.size, weight.sha256) == (SINGLE, len(content[SINGLE]), digest)
    assert weight.path is None
    assert not any("README" in request for request in hub.requests)

    hub.requests.clear()
    assert models.source_digests(model, settings) == {SINGLE: digest}
    assert hub.requests == []

    seen: list[tuple[str, int, int | None]] = []
    fetched = models.fetch_weights(model, settings, progress=lambda *at: seen.append(at))
    assert fetched.weights[0].path is not None
    assert fetched.weights[0].path.read_bytes() == content[SINGLE]
    size = len(content[SINGLE])
    assert (f"downloading {SINGLE}", size, size) in seen


def test_sharded(hub: Hub, settings: Settings) -> None:
    hub.repo("org/m", content := sharded())
    model = models.resolve("org/m", settings)
    assert [w.name for w in model.weights] == list(SHARDS)
    assert model.dtype == "bfloat16"
    for weight in models.fetch_weights(model, settings).weights:
        assert weight.path is not None
        assert weight.path.read_bytes() == content[weight.name]


def test_pinned_and_seen_needs_no_network(hub: Hub, settings: Settings) -> None:
    repo = hub.repo("org/m", files())
    reference = f"org/m@{repo.branches['main']}"
    first = models.fetch_weights(models.resolve(reference, settings), settings)
    settle()
    models.fetch_weights(models.resolve(reference, settings), settings)
    hub.requests.clear()
    second = models.resolve(reference, settings)
    assert models.fetch_weights(second, settings).weights == first.weights
    assert second.weights == first.weights
    assert hub.requests == []


def test_the_dtype_does_not_depend_on_whether_weights_are_here(
    hub: Hub, settings: Settings
) -> None:
    hub.repo("org/m", files(tensors("bfloat16", a=(4, 4)), torch_dtype="float32"))
    before = models.resolve("org/m", settings)
    models.fetch_weights(before, settings)
    after = models.resolve("org/m", offline(settings))
    assert before.dtype == after.dtype == "bfloat16"


def test_a_hit_imports_no_client(hub: Hub, settings: Settings) -> None:
    repo = hub.repo("org/m", files())
    reference = f"org/m@{repo.branches['main']}"
    models.resolve(reference, settings)
    code = f"""
import sys
from pathlib import Path
from neuroncompile import models
from neuroncompile.settings import HubSettings, Settings
hub = HubSettings(endpoint="http://127.0.0.1:1", cache=Path({str(settings.hub.cache)!r}))
settings = Settings(Path({str(settings.store)!r}), "test", False, hub, Path("cache"))
models.resolve({reference!r}, settings)
heavy = {{"huggingface_hub", "torch", "numpy", "asyncio", "urllib3", "httpx", "ssl", "logging"}}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_moving_branch_never_mixes_commits(hub: Hub, settings: Settings) -> None:
    repo = hub.repo("org/m", old := files(tensors(a=(4, 4))))
    model = models.resolve("org/m", settings)
    repo.commit(new := files(tensors(a=(2, 8)), vocab_size=65))
    fetched = models.fetch_weights(model, settings)
    assert fetched.weights[0].path is not None
    assert fetched.weights[0].path.read_bytes() == old[SINGLE]
    again = models.resolve("org/m", settings)
    assert again.revision != model.revision
    assert again.config["vocab_size"] == 65
    path = models.fetch_weights(again, settings).weights[0].path
    assert path is not None
    assert path.read_bytes() == new[SINGLE]


@pytest.mark.parametrize("how", ["org/m@v1", "hf:org/m@v1", "flag", "org/m@refs/pr/1"])
def test_branches_tags_and_pull_requests(hub: Hub, settings: Settings, how: str) -> None:
    repo = hub.repo("org/m", files())
    sha = repo.commit(files(vocab_size=99), "v1")
    repo.branches["refs/pr/1"] = sha
    if how == "flag":
        model = models.resolve("org/m", settings, revision="v1")
    else:
        model = models.resolve(how, settings)
    assert (model.revision, model.config["vocab_size"]) == (sha, 99)
    reference = "org/m@v1" if how == "flag" else how
    assert models.resolve(reference, offline(settings)).revision == sha


# --- offline ---------------------------------------------------------------------------------


def test_offline_uses_refs_and_opens_no_socket(
    hub: Hub, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repo("org/m", files())
    online = models.fetch_weights(models.resolve("org/m", settings), settings)

    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    model = models.fetch_weights(models.resolve("org/m", offline(settings)), offline(settings))
    assert (model.revision, model.weights) == (online.revision, online.weights)


@pytest.mark.parametrize("reference", ["org/m", "org/m@v2", f"org/m@{'a' * 40}"])
def test_offline_and_not_cached(hub: Hub, settings: Settings, reference: str) -> None:
    hub.repo("org/m", files())
    if reference == "org/m@v2":
        models.resolve("org/m", settings)
    hub.requests.clear()
    with pytest.raises(NotCachedError) as raised:
        models.resolve(reference, offline(settings))
    message = str(raised.value)
    assert "org/m" in message
    assert (reference.partition("@")[2] or "main") in message
    assert str(settings.hub.cache) in message
    assert raised.value.exit_code == 4
    assert hub.requests == []
    assert models.cached(reference, settings) is None


def test_offline_with_weights_not_fetched(hub: Hub, settings: Settings) -> None:
    hub.repo("org/m", files())
    models.resolve("org/m", settings)
    model = models.resolve("org/m", offline(settings))
    with pytest.raises(NotCachedError, match=SINGLE):
        models.fetch_weights(model, offline(settings))


def test_a_cache_filled_by_another_tool(hub: Hub, settings: Settings) -> None:
    from huggingface_hub import snapshot_download

    hub.repo("org/m", content := files())
    snapshot_download("org/m", endpoint=hub.endpoint, cache_dir=settings.hub.cache, token=False)
    model = models.resolve("org/m", offline(settings))
    assert model.dtype == "float16"
    assert model.weights[0].sha256 == sha256(content[SINGLE]).hexdigest()
    assert models.fetch_weights(model, offline(settings)).weights[0].path is not None


def test_a_half_filled_cache_of_another_tool_is_no_model(hub: Hub, settings: Settings) -> None:
    from huggingface_hub import hf_hub_download

    repo = hub.repo("org/m", sharded())
    for name in ("config.json", INDEX, SHARDS[0]):
        hf_hub_download(
            "org/m", name, endpoint=hub.endpoint, cache_dir=settings.hub.cache, token=False
        )
    with pytest.raises(NotCachedError, match=SHARDS[1]):
        models.resolve(f"org/m@{repo.branches['main']}", offline(settings))


@pytest.mark.parametrize("held", ["tokenizer.json", SINGLE])
def test_killed_in_a_download(hub: Hub, settings: Settings, held: str) -> None:
    hub.repo("org/m", content := files() | {"tokenizer.json": b'{"a": 1, "b": 2}'})
    hub.hold.add(held)
    process = subprocess.Popen([sys.executable, "-c", fetching(hub, settings)])
    try:
        assert hub.held.wait(30)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    hub.hold.clear()
    with pytest.raises(NotCachedError):
        models.fetch_weights(models.resolve("org/m", offline(settings)), offline(settings))
    model = models.fetch_weights(models.resolve("org/m", settings), settings)
    assert model.weights[0].path is not None
    assert model.weights[0].path.read_bytes() == content[SINGLE]
    assert model.tokenizer_dir is not None
    assert (model.tokenizer_dir / "tokenizer.json").read_bytes() == content["tokenizer.json"]


def test_a_broken_connection_goes_on_where_it_stopped(hub: Hub, settings: Settings) -> None:
    """Of what the client had written; it writes pieces of ten megabytes."""
    hub.repo("org/m", content := files(tensors(a=(4096, 4096))))
    hub.cut.add(SINGLE)
    model = models.fetch_weights(models.resolve("org/m", settings), settings)
    assert model.weights[0].path is not None
    assert model.weights[0].path.read_bytes() == content[SINGLE]
    ranges = [headers.get("range") for headers in hub.cdn_headers if "range" in headers]
    assert "bytes=10485760-" in ranges


def test_a_killed_download_keeps_its_finished_files(hub: Hub, settings: Settings) -> None:
    hub.repo("org/m", content := sharded())
    hub.hold.add(SHARDS[1])
    process = subprocess.Popen([sys.executable, "-c", fetching(hub, settings)])
    try:
        assert hub.held.wait(60)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    hub.status = 503  # a Hub that fails now gives no partial model either
    assert isinstance(failure("org/m", settings), NetworkError)
    hub.status = None
    with pytest.raises(NotCachedError, match=SHARDS[1]):
        models.fetch_weights(models.resolve("org/m", offline(settings)), offline(settings))
    hub.hold.clear()
    hub.requests.clear()
    model = models.fetch_weights(models.resolve("org/m", settings), settings)
    assert [w.path.read_bytes() for w in model.weights if w.path] == [content[s] for s in SHARDS]
    assert not [request for request in weight_requests(hub) if SHARDS[0] in request]


def fetching(hub: Hub, settings: Settings) -> str:
    return f"""
from pathlib import Path
from neuroncompile import models
from neuroncompile.settings import HubSettings, Settings
hub = HubSettings(endpoint={hub.endpoint!r}, cache=Path({str(settings.hub.cache)!r}))
settings = Settings(Path({str(settings.store)!r}), "test", False, hub, Path("cache"))
models.fetch_weights(models.resolve("org/m", settings), settings)
"""


# --- broken bytes ----------------------------------------------------------------------------


@pytest.mark.parametrize("spoilt", [SINGLE, "tokenizer_config.json"])
def test_bytes_spoilt_on_the_way(hub: Hub, settings: Settings, spoilt: str) -> None:
    hub.repo("org/m", content := files())
    hub.spoil.add(spoilt)
    with pytest.raises(ModelError, match=f"{spoilt} .* differs"):
        models.fetch_weights(models.resolve("org/m", settings), settings)
    with pytest.raises(NotCachedError):
        models.fetch_weights(models.resolve("org/m", offline(settings)), offline(settings))
    hub.spoil.clear()
    model = models.fetch_weights(models.resolve("org/m", settings), settings)
    assert model.weights[0].path is not None
    assert model.weights[0].path.read_bytes() == content[SINGLE]


def test_bytes_spoilt_on_the_disk(hub: Hub, settings: Settings) -> None:
    hub.repo("org/m", content := files())
    path = models.fetch_weights(models.resolve("org/m", settings), settings).weights[0].path
    assert path is not None
    blob = path.resolve()
    blob.chmod(0o644)
    blob.write_bytes(content[SINGLE][:-1] + b"\xff")
    with pytest.raises(ModelError, match="differs"):
        models.fetch_weights(models.resolve("org/m", offline(settings)), offline(settings))
    model = models.fetch_weights(models.resolve("org/m", settings), settings)
    assert model.weights[0].path is not None
    assert model.weights[0].path.read_bytes() == content[SINGLE]


# --- what a repository can lack --------------------------------------------------------------


def without(*names: str, **extra: bytes) -> dict[str, bytes]:
    return {n: b for n, b in files().items() if n not in names} | {
        n.replace("__", "."): b for n, b in extra.items()
    }


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (without(SINGLE, pytorch_model__bin=b"x"), "only pytorch_model.bin", "safetensors"),
        (without(SINGLE), "no model.safetensors", "safetensors"),
        (without("config.json", SINGLE, m__gguf=b"x"), "no config.json", "m.gguf"),
        (without("config.json", adapter_config__json=b"{}"), "no config.json", "base model"),
        (without(SINGLE) | {INDEX: b"{}"}, "weight_map", "index"),
        (
            without(SINGLE) | {INDEX: b'{"weight_map": {"a": "x.safetensors"}}'},
            "names x.safetensors",
            "revision",
        ),
        (files() | {"config.json": b"[1]"}, "not an object", "own repository"),
    ],
)
def test_repositories_that_cannot_be_used(
    hub: Hub, settings: Settings, content: dict[str, bytes], message: str, hint: str
) -> None:
    hub.repo("org/m", content)
    with pytest.raises(ModelError, match=message) as raised:
        models.resolve("org/m", settings)
    assert hint in (raised.value.hint or "")
    assert not weight_requests(hub)


def test_only_small_files_are_optional(hub: Hub, settings: Settings) -> None:
    hub.repo("org/m", without("tokenizer.json", "tokenizer_config.json", "generation_config.json"))
    model = models.resolve("org/m", settings)
    assert (model.tokenizer_dir, model.generation_config, model.chat_template) == (None, {}, None)


# --- what the Hub can answer -----------------------------------------------------------------


def failure(reference: str, settings: Settings) -> NeuronCompileError:
    with pytest.raises(NeuronCompileError) as raised:
        models.resolve(reference, settings)
    error = raised.value
    assert error.exit_code == 4
    assert error.hint
    assert "\n" not in str(error)
    assert TOKEN not in f"{error} {error.hint} {error.details} {error.__cause__!r}"
    return error


def test_every_refusal_has_its_own_message(hub: Hub, settings: Settings) -> None:
    hub.repo("org/m", files())
    hub.repo("org/gated", files(), gated=True)
    hub.repo("org/private", files(), private=True)
    known, stranger = with_token(settings), with_token(settings, "hf_stranger")
    hub.tokens = {TOKEN: False}
    cases: list[tuple[str, Settings, type[ModelError], str, str]] = [
        ("org/typo", settings, ModelNotFoundError, "no public repository org/typo", "HF_TOKEN"),
        ("org/private", settings, ModelNotFoundError, "org/private", "HF_TOKEN"),
        ("org/typo", known, ModelNotFoundError, "no repository org/typo", "spelling"),
        ("org/m@v9", settings, ModelNotFoundError, "no revision v9", "branches"),
        ("org/gated", settings, GatedModelError, "gated, and no token", "HF_TOKEN"),
        ("org/gated", known, GatedModelError, "gated, and this token's account", "ask for access"),
        ("org/m", stranger, GatedModelError, "refuses the token", "HF_TOKEN"),
    ]
    messages = set()
    for reference, how, kind, message, hint in cases:
        error = failure(reference, how)
        assert type(error) is kind, reference
        assert message in str(error)
        assert hint in (error.hint or "")
        messages.add(str(error))
    assert len(messages) == len(cases)


def test_a_token_with_access_opens_a_gated_repository(hub: Hub, settings: Settings) -> None:
    hub.repo("org/gated", files(), gated=True)
    hub.tokens = {TOKEN: True}
    model = models.resolve("org/gated", with_token(settings))
    assert models.fetch_weights(model, with_token(settings)).weights[0].path is not None
    assert weight_requests(hub)
    assert all("authorization" not in headers for headers in hub.cdn_headers)


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_a_hub_that_fails(hub: Hub, settings: Settings, status: int) -> None:
    hub.repo("org/m", files())
    sha = models.resolve("org/m", settings).revision
    hub.status = status
    error = failure("org/m", settings)
    assert isinstance(error, NetworkError)
    assert ("limits" if status == 429 else str(status)) in str(error)
    assert "--offline" in (error.hint or "")
    assert sha is not None
    assert sha[:7] in (error.hint or "")


def test_a_rate_limit_says_how_long(hub: Hub, settings: Settings) -> None:
    hub.repo("org/m", files())
    hub.status, hub.retry_after = 429, 37
    error = failure("org/m", settings)
    assert "wait 37 seconds" in (error.hint or "")
    assert error.details["retry_after"] == 37


def test_a_snapshot_copied_to_a_volume(hub: Hub, settings: Settings, tmp_path: Path) -> None:
    """With its links followed it is a model; with links to nothing it is none."""
    hub.repo("org/m", content := files())
    models.fetch_weights(models.resolve("org/m", settings), settings)

    def at(name: str, *, follow: bool) -> Settings:
        shutil.copytree(settings.hub.cache, tmp_path / name, symlinks=not follow)
        if not follow:
            shutil.rmtree(next((tmp_path / name).rglob("blobs")))
        moved = replace(settings.hub, cache=tmp_path / name)
        return offline(replace(settings, hub=moved, store=tmp_path / f"{name}-store"))

    whole = at("whole", follow=True)
    model = models.fetch_weights(models.resolve("org/m", whole), whole)
    assert model.weights[0].path is not None
    assert not model.weights[0].path.is_symlink()
    assert model.weights[0].path.read_bytes() == content[SINGLE]
    dangling = at("dangling", follow=False)
    with pytest.raises(NotCachedError):
        models.fetch_weights(models.resolve("org/m", dangling), dangling)


@pytest.mark.parametrize("case", ["allowed", "gated", "refused", "failing", "unreachable"])
def test_a_token_is_nowhere(hub: Hub, run: Run, tmp_path: Path, case: str) -> None:
    hub.repo("org/m", files(), gated=True)
    hub.tokens = {} if case == "refused" else {TOKEN: case == "allowed"}
    hub.status = 500 if case == "failing" else None
    endpoint = "http://127.0.0.1:1" if case == "unreachable" else hub.endpoint
    home = tmp_path / "home"
    home.mkdir()
    done = run(
        *("build", "org/m", "--target=trn2", "--toolchain=sdk-2.28", "--seq-len=64"),
        *("--dry-run", "--json", "-vv", "--store", str(tmp_path / "store")),
        HF_TOKEN=TOKEN,
        HF_ENDPOINT=endpoint,
        HOME=str(home),
    )
    assert done.code == (0 if case == "allowed" else 4), done.err
    assert TOKEN not in done.out + done.err
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert (case == "allowed") <= bool(written)
    assert not [path for path in written if TOKEN.encode() in path.read_bytes()]


def test_a_forbidden_repository(hub: Hub, settings: Settings) -> None:
    hub.status = 403
    assert isinstance(failure("org/m", with_token(settings)), GatedModelError)


def test_a_captive_portal(hub: Hub, settings: Settings) -> None:
    hub.html = True
    error = failure("org/m", settings)
    assert isinstance(error, NetworkError)
    assert "does not answer as a Hugging Face Hub" in str(error)


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("http://127.0.0.1:1", "connection refused"),
        ("http://user:hunter2@127.0.0.1:1", "connection refused"),
        ("http://no-such-host.invalid", "cannot be resolved"),
    ],
)
def test_no_network(settings: Settings, endpoint: str, reason: str) -> None:
    here = replace(settings, hub=replace(settings.hub, endpoint=endpoint, token=TOKEN))
    error = failure("org/m", here)
    assert isinstance(error, NetworkError)
    assert reason in str(error)
    assert "hunter2" not in f"{error} {error.hint} {error.details}"


def test_progress_of_a_xet_download() -> None:
    """Its protocol needs a real storage server; its bars do not."""
    from huggingface_hub.utils._xet_progress_reporting import XetDownloadProgressReporter

    from neuroncompile.models.hub_client import _bar

    seen: list[tuple[str, int, int | None]] = []
    with XetDownloadProgressReporter(
        reconstruction_desc="x",
        total=10,
        log_level=20,
        tqdm_class=_bar("x", lambda *at: seen.append(at)),
    ) as reporter:
        for done in (0, 4, 10):
            reporter.update_progress(
                SimpleNamespace(
                    total_bytes=10,
                    total_bytes_completed=done,
                    total_transfer_bytes_completed=done * 2,
                    total_bytes_completion_rate=1.0,
                    total_transfer_bytes_completion_rate=1.0,
                )
            )
    assert seen == [("downloading x", 4, 10), ("downloading x", 10, 10)]


def test_a_cache_that_cannot_be_written(hub: Hub, settings: Settings, tmp_path: Path) -> None:
    hub.repo("org/m", files())
    (tmp_path / "file").write_text("in the way")
    here = replace(settings, hub=replace(settings.hub, cache=tmp_path / "file" / "hub"))
    with pytest.raises(StoreError) as raised:
        models.resolve("org/m", here)
    assert "HF_HUB_CACHE" in (raised.value.hint or "")


def test_a_store_that_cannot_remember(hub: Hub, settings: Settings, tmp_path: Path) -> None:
    repo = hub.repo("org/m", files())
    (tmp_path / "file").write_text("in the way")
    here = replace(settings, store=tmp_path / "file" / "store")
    model = models.fetch_weights(models.resolve("org/m", here), here)
    assert model.revision == repo.branches["main"]
    assert model.weights[0].path is not None
