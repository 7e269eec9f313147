"""Secrets, names and places go; versions, codes and token ids stay."""

from __future__ import annotations

import base64
import json
import os
import socket
from urllib.parse import quote

import pytest

from neuroncompile.errors import NeuronCompileError
from neuroncompile.pipeline.bug import report
from neuroncompile.pipeline.redact import REDACTED, Redactor

HF = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
NOBODY = Redactor()


@pytest.mark.parametrize(
    "secret",
    [
        HF,
        "hf_shorttok1",
        "AKIAIOSFODNN7EXAMPLE",
        "ASIAIOSFODNN7EXAMPLE",
        "ghp_0123456789abcdefghij0123456789abcdef",
        "github_pat_11ABCDEFG0123456789_abcdef",
        "glpat-ABCDEFGHIJKLMNOPQRST",
        "sk-proj-0123456789abcdef0123",
        "xoxb-123456789012-abcdefgh",
        "AIza" + "B" * 35,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    ],
)
def test_by_its_form(secret: str) -> None:
    for text in (secret, f"a {secret} b", f'"{secret}"', f"--token={secret}", f"({secret})"):
        assert secret not in NOBODY.text(text)
        padded = b"\0\x0a\x22" + text.encode() + b"\0\xff"
        assert secret.encode() not in NOBODY.data(padded)
        assert len(NOBODY.data(padded)) == len(padded)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", f"aws_secret_access_key = {REDACTED}"),
        ('{"api_key": "0123456789", "n": 1}', f'{{"api_key": "{REDACTED}", "n": 1}}'),
        ("HF_TOKEN=abcdefgh1234 python", f"HF_TOKEN={REDACTED} python"),
        ("password: 'correct-horse'", f"password: '{REDACTED}'"),
        ('{"Authorization": "Basic dXNlcjpw"}', f'{{"Authorization": "{REDACTED}"}}'),
        ("curl -H 'Authorization: Bearer abc' x", f"curl -H 'Authorization: {REDACTED}' x"),
        ("https://me:pass@host.example/x", f"https://{REDACTED}@host.example/x"),
        ("GET /a?X-Amz-Signature=0f0f&b=1", f"GET /a?{REDACTED}&b=1"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- x", f"{REDACTED} x"),
        ("-----BEGIN PRIVATE KEY-----\nMII cut", REDACTED),
        ("/home/alice/m/config.json", "~/m/config.json"),
        ("/Users/alice/m", "~/m"),
        ("File '/root/x.py', line 1", "File '~/x.py', line 1"),
        ("ssh ip-10-0-3-17.us-west-2.compute.internal", "ssh [host]"),
        ("ubuntu@16.51.165.37", "ubuntu@[host]"),
        ("by jane.doe@example.com", "by [email]"),
        (
            "763104351884.dkr.ecr.us-west-2.amazonaws.com",
            "[account].dkr.ecr.us-west-2.amazonaws.com",
        ),
        ("arn:aws:iam::600627330911:role/x", "arn:aws:iam::[account]:role/x"),
    ],
)
def test_by_its_surroundings(text: str, wanted: str) -> None:
    assert NOBODY.text(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "neuronx-cc 2.24.5133.0+58f8de22, runtime 2.17.194.0, torch 2.9.0.2.13.26312",
        '{"bos_token_id": 128000, "eos_token": "<|end_of_text|>", "pad_token_id": 0}',
        "token_generation_model b1 2048, max_new_tokens: 12345678, tokenizer.json",
        "[INTERNAL_ERROR] [NCC_INLA001] checkDMATranspose - 2026-07-29T22:37:54Z",
        "MODULE_12486829708343293975+d41d8cd9 in context_encoding_model/_tp0_bk4",
        "org/name@main, pip@24.0",
        "--target=trn2 --lnc=2 -O1 --logfile=/w/nxd_model/x/log-neuron-cc.txt",
        "DISABLE_NUMERIC_CC_TOKEN=1",
        "sha256:" + "0123456789abcdef" * 4,
        "the root of the tree is root = None; /work/root/x and a/root",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor(users=["root", "ubuntu"], hosts=["localhost"]).text(text) == text
    assert NOBODY.data(b"\0" + text.encode()) == b"\0" + text.encode()


def test_the_values_of_variables_that_say_so() -> None:
    environment = {
        "HF_TOKEN": "plain-and-unusual",
        "MY_SERVICE_PASSWORD": "hunter2hunter2",
        "DB_DSN": "pg-connection-string",
        "SIGNING_KEY": "line one of it\nline two of it",
        "SHORT_TOKEN": "abc",
        "PATH": "/usr/bin",
        "MODEL": "innocent",
    }
    redactor = Redactor(environment=environment)
    text = "plain-and-unusual hunter2hunter2 pg-connection-string line two of it"
    assert set(redactor.text(text).split()) == {REDACTED}
    assert redactor.text("abc /usr/bin innocent") == "abc /usr/bin innocent"


@pytest.mark.parametrize("secret", ['p"a\\ss wörd', "a+b/c=d&e?f", "simple-secret-42"])
def test_in_every_spelling(secret: str) -> None:
    redactor = Redactor(secrets=[secret])
    plain = json.dumps(secret, ensure_ascii=False)
    forms = [secret, json.dumps(secret), plain, repr(secret), quote(secret, safe="")]
    for form in forms:
        assert redactor.text(f"x {form} y") in (
            f"x {REDACTED} y",
            *(f"x {q}{REDACTED}{q} y" for q in "\"'"),
        )
    for before in ("", "u", "me", "user:", "a name:"):
        encoded = base64.b64encode((before + secret).encode()).decode()
        assert REDACTED in redactor.text(encoded)
        assert len(redactor.text(encoded).replace(REDACTED, "")) <= len(before) * 4 / 3 + 8


def test_who_and_where() -> None:
    redactor = Redactor(home="/data/people/jdoe", users=["jdoe"], hosts=["build-7", "build-7.corp"])
    text = "jdoe@build-7.corp: /data/people/jdoe/x /tmp/jdoe/nxd BUILD-7 jdoes /data/people/jdoe2"
    assert redactor.text(text) == (
        "[user]@[host]: ~/x /tmp/[user]/nxd [host] jdoes /data/people/jdoe2"
    )
    assert redactor.data(b"\0/data/people/jdoe/x\0build-7\0") == (
        b"\0" + b"x" * 17 + b"/x\0" + b"x" * 7 + b"\0"
    )


def test_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "not-of-the-usual-form")
    monkeypatch.setenv("USER", "some-body")
    monkeypatch.setenv("HOME", "/mnt/people/some-body")
    text = Redactor.here([None, "given-by-hand"]).text(
        f"not-of-the-usual-form given-by-hand {socket.gethostname()} /mnt/people/some-body/x "
        "some-body"
    )
    assert text == f"{REDACTED} {REDACTED} [host] ~/x [user]"


def test_binary_bytes_outside_texts_are_untouched() -> None:
    data = bytes(range(256)) * 64
    assert Redactor(environment=os.environ).data(data) == data


@pytest.mark.parametrize("part", ["a", "a.b-", "token", "http://", "eyJ", "/home", "@"])
def test_long_lines_do_not_send_a_pattern_astray(part: str) -> None:
    line = part * 20_000  # one that backtracks would not be done today
    assert NOBODY.text(line) == ("~" + part * 19_998 if part == "/home" else line)
    assert len(NOBODY.data(line.encode())) == len(line)


def test_a_bug_report_has_neither_secret_nor_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    monkeypatch.setattr("tempfile.tempdir", None)
    try:
        raise ValueError(f"{HF} wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY /home/alice/x")
    except ValueError as error:
        shown = report(error, "build")
    assert isinstance(shown, NeuronCompileError)
    with open(shown.details["report"], encoding="utf-8") as file:
        text = file.read()
    assert "ValueError" in text
    for planted in (HF, "wJalrXUtnFEMI", "alice"):
        assert planted not in text
        assert planted not in str(shown)
