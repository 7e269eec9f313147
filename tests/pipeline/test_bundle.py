"""A bundle has all that a compiler's maker needs, and nothing of who sent it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from neuroncompile.backends.nxdi.failures import classify
from neuroncompile.errors import StoreError
from neuroncompile.pipeline import bundle as bundle_module
from neuroncompile.pipeline.bundle import Bundle, write_bundle
from neuroncompile.pipeline.redact import REDACTED, Redactor
from neuroncompile.store.tar import members

HF = "hf_" + "ZyXwVuTsRqPoNmLkJiHgFeDcBa98765432"
AWS = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
PASSWORD = 'odd "pass\\word" ü'
SECRETS = (HF, AWS, PASSWORD)
NAMES = ("jdoe", "build-host-7", "/mnt/people")
KERNEL = "71adab98b5b4ec7f/my_kernel_artifact"

SPEC = {
    "schema": 1,
    "kind": "compile",
    "model": {"model_type": "llama", "bos_token_id": 128000, "rms_norm_eps": "1e-05"},
    "neuron": {"tp_degree": 8, "context_encoding_buckets": [128, 512]},
    "compiler": {"args": ["--lnc=2"], "env": {"NEURON_SOMETHING": HF}},
    "toolchain": {"neuronx-cc": "2.24.5133.0+58f8de22"},
}


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(
        secrets=[PASSWORD],
        environment={"HF_TOKEN": HF, "AWS_SECRET_ACCESS_KEY": AWS},
        home="/mnt/people/jdoe",
        users=["jdoe"],
        hosts=["build-host-7"],
    )


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work tree as NxD leaves it, with secrets in every kind of file."""
    root = tmp_path / "mnt" / "nxd_model"
    place = root / "context_encoding_model" / "_tp0_bk1"
    (place / "model").mkdir(parents=True)
    poison = " ".join((*SECRETS, "/mnt/people/jdoe/x.py", "build-host-7"))
    kernel = tmp_path / KERNEL
    kernel.parent.mkdir()
    kernel.write_bytes(b"\0klir\0" + f"/home/jdoe/k.py {HF}".encode() + b"\0")
    hlo = b"\x0a\x10\0" + f"{poison} {kernel}".encode() + b"\0\x80\xff"
    (place / "model" / "graph.hlo").write_bytes(hlo)
    (place / "wrapped_neff.hlo").write_bytes(b"\0small")
    (place / "graph.neff").write_bytes(b"a compiled program")
    (place / "log-neuron-cc.txt").write_text(f"jdoe runs it: {poison}\n[F137] killed\n")
    (place / "command.txt").write_text(f"HF_TOKEN={HF} neuronx-cc compile --target=trn2\n")
    (place / "model.safetensors").write_bytes(b"weights")
    (place / "secrets.txt").symlink_to("/etc/hostname")
    (root / "neuron_config.json").write_text(json.dumps({"_name_or_path": "/home/jdoe/model"}))
    return root


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "compile.log"
    lines = [
        "2026-05-25 22:16:44: 4071 INFO ||NEURON_CC_WRAPPER||: Call compiler with cmd: "
        f"neuronx-cc compile --framework=XLA /mnt/people/jdoe/model.hlo --token {HF}",
        f"Authorization: Bearer {HF}",
        f"password={quote(PASSWORD)} and {base64.b64encode(PASSWORD.encode()).decode()}",
        json.dumps({"text": PASSWORD}),
        f"Kernel file '{tmp_path / KERNEL}' referenced",
        "Kernel file '/etc/shadow' referenced",
        "Kernel file '/nowhere/0123456789abcdef/gone' referenced",
        "[ERROR] [NCC_EOOM001] Maximum peak HBM usage of 32.00GB exceeds HBM limit of 24.00GB",
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def made(work: Path, log: Path, redactor: Redactor, tmp_path: Path) -> Bundle:
    failure = classify(
        log.read_text().splitlines(), target="trn2", toolchain={"neuronx-cc": "2.24.5133.0"}
    )
    return write_bundle(
        tmp_path / "out" / "failure.tar.gz",
        failure,
        spec=SPEC,
        work=work,
        log=log,
        redactor=redactor,
    )


def contents(path: Path) -> Mapping[str, bytes]:
    """The members, as our own strict reader sees them."""
    stream = io.BytesIO(gzip.decompress(path.read_bytes()))
    return {member.name: b"".join(member.chunks()) for member in members(stream)}


def spellings(secret: str) -> list[bytes]:
    texts = [secret, json.dumps(secret)[1:-1], quote(secret), quote(secret, safe="")]
    return [*map(str.encode, texts), base64.b64encode(secret.encode())[:-4]]


def test_what_is_in_it(made: Bundle) -> None:
    graph = "graphs/context_encoding_model/_tp0_bk1"
    assert made.members == (
        "bundle.json",
        "command.txt",
        "compile.log",
        f"{graph}/command.txt",
        f"{graph}/log-neuron-cc.txt",
        f"{graph}/model/graph.hlo",
        f"{graph}/wrapped_neff.hlo",
        "graphs/neuron_config.json",
        f"kernels/{KERNEL}",
        "spec.json",
    )
    assert tuple(contents(made.path)) == made.members
    assert made.size == made.path.stat().st_size
    assert made.path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(made.path.parent) == ["failure.tar.gz"]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_planted_secret_is_in_no_member(made: Bundle, secret: str) -> None:
    found = contents(made.path)
    for name, data in found.items():
        for form in spellings(secret):
            assert form not in data, name
            assert form not in name.encode()


def test_nor_is_who_and_where(made: Bundle) -> None:
    for member, data in contents(made.path).items():
        for name in NAMES:
            assert name.encode() not in data, member


def test_what_is_needed_is_still_there(made: Bundle) -> None:
    found = contents(made.path)
    spec = json.loads(found["spec.json"])
    assert spec["compiler"]["env"] == {"NEURON_SOMETHING": REDACTED}
    assert {**spec, "compiler": SPEC["compiler"]} == SPEC
    assert b"neuronx-cc compile --framework=XLA ~/model.hlo" in found["command.txt"]
    assert b"[NCC_EOOM001] Maximum peak HBM usage of 32.00GB" in found["compile.log"]
    assert b"[F137] killed" in found["graphs/context_encoding_model/_tp0_bk1/log-neuron-cc.txt"]


def test_a_binary_file_keeps_its_length(made: Bundle, work: Path) -> None:
    place = "context_encoding_model/_tp0_bk1/model/graph.hlo"
    before, after = (work / place).read_bytes(), contents(made.path)[f"graphs/{place}"]
    assert len(after) == len(before)
    assert after[:3] == before[:3]
    assert after[-3:] == before[-3:]
    assert KERNEL.encode() in after


def test_its_head(made: Bundle) -> None:
    found = contents(made.path)
    head = json.loads(found["bundle.json"])
    assert head["failure"]["code"] == "NCC_EOOM001"
    assert head["failure"]["figures"] == {"peak_hbm": 32 << 30, "hbm_limit": 24 << 30}
    assert (head["target"], head["versions"]) == ("trn2", {"neuronx-cc": "2.24.5133.0"})
    listed = {file["name"]: (file["size"], file["sha256"]) for file in head["files"]}
    assert listed == {
        name: (len(data), hashlib.sha256(data).hexdigest())
        for name, data in found.items()
        if name != "bundle.json"
    }
    assert (
        head["left_out"]
        == made.left_out
        == {
            "/etc/shadow": "not in a kernel's directory",
            "/nowhere/0123456789abcdef/gone": "not on this host",
        }
    )


def test_the_same_failure_gives_the_same_bytes(
    made: Bundle, work: Path, log: Path, redactor: Redactor, tmp_path: Path
) -> None:
    for path in work.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (1, 1))
    failure = classify(
        log.read_text().splitlines(), target="trn2", toolchain={"neuronx-cc": "2.24.5133.0"}
    )
    again = write_bundle(
        tmp_path / "other.tar.gz", failure, spec=SPEC, work=work, log=log, redactor=redactor
    )
    assert again.path.read_bytes() == made.path.read_bytes()


def test_tar_reads_it_too(made: Bundle) -> None:
    with tarfile.open(made.path) as tar:
        for member in tar:
            assert member.isreg()
            assert (member.uid, member.gid, member.mtime, member.mode) == (0, 0, 0, 0o644)
            assert (member.uname, member.gname) == ("", "")
        assert tuple(tar.getnames()) == made.members


def bundled(tmp_path: Path, files: Mapping[str, bytes], **known: Any) -> Bundle:
    root = tmp_path / "tree"
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return write_bundle(tmp_path / "b.tar.gz", classify([]), spec={}, work=root, **known)


def test_names_are_plain_and_tell_nothing(tmp_path: Path) -> None:
    redactor = Redactor(users=["jdoe"])
    files = {"jdoe/ü b.txt": b"1", "-rf/..x.txt": b"2", f"{'deep/' * 30}end.txt": b"3"}
    made = bundled(tmp_path, files, redactor=redactor)
    known = {"bundle.json", "spec.json", "graphs/-rf/x.txt", "graphs/-user-/--b.txt"}
    (long,) = set(made.members) - known
    assert len(made.members) == 5
    assert long.startswith("graphs/")
    assert long.endswith("-end.txt")
    assert all(len(name) <= 100 and name.isascii() for name in made.members)


def test_names_that_become_one_stay_two(tmp_path: Path) -> None:
    made = bundled(tmp_path, {"a b.txt": b"1", "a-b.txt": b"2"}, redactor=Redactor())
    data = contents(made.path)
    assert sorted(data[name] for name in made.members if "a-b.txt" in name) == [b"1", b"2"]


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "private.txt").write_text("private")
    root = tmp_path / "tree"
    root.mkdir()
    (root / "link.txt").symlink_to(outside / "private.txt")
    (root / "directory").symlink_to(outside)
    os.mkfifo(root / "pipe.txt")
    made = bundled(tmp_path, {"kept.txt": b"kept"}, redactor=Redactor())
    assert made.members == ("bundle.json", "graphs/kept.txt", "spec.json")


def test_what_cannot_be_looked_into_is_left_out(tmp_path: Path) -> None:
    packed = gzip.compress(HF.encode())
    made = bundled(tmp_path, {"graph.hlo": packed, "x.pb": b"PK\x03\x04zip"}, redactor=Redactor())
    assert set(made.left_out) == {"graphs/graph.hlo", "graphs/x.pb"}
    assert "compressed" in made.left_out["graphs/graph.hlo"]


def test_large_files_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_module, "LARGEST", 100)
    monkeypatch.setattr(bundle_module, "LARGEST_IN_ALL", 250)
    files = {"a.hlo": bytes(101), "b.hlo": bytes(100), "c.hlo": bytes(100), "d.hlo": bytes(100)}
    made = bundled(tmp_path, files, redactor=Redactor())
    assert [name for name in made.members if name.startswith("graphs")] == [
        "graphs/b.hlo",
        "graphs/c.hlo",
    ]
    assert set(made.left_out) == {"graphs/a.hlo", "graphs/d.hlo"}


def test_of_a_large_text_the_end_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_module, "LARGEST", 100)
    monkeypatch.setattr(bundle_module, "LOG_LINES", 2)
    lines = [f"line {n}" for n in range(50)]
    made = bundled(tmp_path, {"l.txt": "\n".join(lines).encode()}, redactor=Redactor())
    assert contents(made.path)["graphs/l.txt"] == b"line 48\nline 49"
    assert made.left_out == {"graphs/l.txt": "only its last 2 lines are in"}


def test_a_kernel_that_only_an_hlo_names(tmp_path: Path) -> None:
    kernel = tmp_path / "k" / "0123456789abcdef" / "attention"
    kernel.parent.mkdir(parents=True)
    kernel.write_bytes(b"kernel\0")
    link = kernel.with_name("link")
    link.symlink_to(kernel)
    hlo = b"\0\x12\x40" + str(kernel).encode() + b"J\x04" + str(link).encode() + b"\x1a\0"
    made = bundled(tmp_path, {"graph.hlo": hlo}, redactor=Redactor())
    assert contents(made.path)["kernels/0123456789abcdef/attention"] == b"kernel\0"
    assert list(made.left_out.values()) == ["not on this host"]


def test_logs_that_lie_elsewhere(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "token_generation_model-4-2048.txt").write_text(f"said {HF}")
    made = bundled(tmp_path, {"a.txt": b"1"}, logs=logs, redactor=Redactor())
    found = contents(made.path)
    assert found["logs/token_generation_model-4-2048.txt"] == f"said {REDACTED}".encode()
    assert found["graphs/a.txt"] == b"1"


def test_only_the_end_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    log.write_bytes(b"\xff first\n" + b"".join(b"line %d\n" % n for n in range(5000)))
    made = write_bundle(tmp_path / "b.tar.gz", classify([]), spec={}, log=log, redactor=Redactor())
    lines = contents(made.path)["compile.log"].decode().splitlines()
    assert (len(lines), lines[0], lines[-1]) == (2000, "line 3000", "line 4999")


def test_without_anything_there_is_still_the_spec(tmp_path: Path) -> None:
    made = write_bundle(
        tmp_path / "b.tar.gz", classify([]), spec={}, work=tmp_path / "no", log=tmp_path / "no"
    )
    assert made.members == ("bundle.json", "spec.json")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write_bundle(tmp_path / "file" / "b.tar.gz", classify([]), spec={}, redactor=Redactor())
