"""Each way a tier can be wrong has its own words, and the words have no secrets in them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from neuroncompile.errors import TierError
from neuroncompile.tiers import Tier, failure_class, find, open_tier, parse_url, pull, push
from tests.tiers.conftest import SECRET, Kit
from tests.tiers.proxy import Proxy

KEY = "ab" * 32


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("S3://bucket/a//", "s3://bucket/a"),
        ("file:///srv/shared/", "file:///srv/shared"),
        ("file://localhost/srv", "file:///srv"),
        ("file:///with%20space", "file:///with space"),
    ],
)
def test_legal_urls(text: str, url: str) -> None:
    assert parse_url(text).url == url


@pytest.mark.parametrize(
    ("text", "failure", "words"),
    [
        ("files:///srv", "scheme", "did you mean file://"),
        ("gs://bucket", "scheme", "s3://BUCKET/PREFIX"),
        ("https://host/x", "scheme", "file:///PATH"),
        ("bucket/prefix", "scheme", "s3://BUCKET/PREFIX"),
        ("/srv/shared", "scheme", "file:///PATH"),
        ("s3:/bucket", "scheme", "s3://BUCKET/PREFIX"),
        ("", "scheme", "s3://BUCKET/PREFIX"),
        ("s3://", "url", "s3://BUCKET/PREFIX"),
        ("s3:///prefix", "url", "s3://BUCKET/PREFIX"),
        ("s3://bucket/a//b", "url", "s3://BUCKET/PREFIX"),
        ("s3://bucket/../other", "url", "s3://BUCKET/PREFIX"),
        ("s3://bucket/%2e%2e/other", "url", "s3://BUCKET/PREFIX"),
        ("s3://bucket/x?versionId=1", "url", "leave out"),
        ("s3://bucket/x#y", "url", "leave out"),
        ("file://relative/path", "url", "file:///PATH"),
        ("file://", "url", "file:///PATH"),
        ("file:///", "url", "file:///PATH"),
    ],
)
def test_wrong_urls_are_told_what_is_legal(text: str, failure: str, words: str) -> None:
    with pytest.raises(TierError) as caught:
        open_tier(text)
    assert caught.value.exit_code == 8
    assert caught.value.details["class"] == failure
    assert caught.value.details["field"] == "tier"
    assert caught.value.details["legal"]
    assert words in str(caught.value.hint)


@pytest.mark.parametrize("text", ["s3://AKID:hunter2@bucket/x", "s4://AKID:hunter2@bucket"])
def test_credentials_in_a_url_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(TierError) as caught:
        open_tier(text)
    assert "hunter2" not in f"{caught.value} {caught.value.as_json()}"


def failure_of(tier: Tier) -> TierError:
    with pytest.raises(TierError) as caught:
        find(tier, "graph", KEY)
    error = caught.value
    assert error.exit_code == 8
    assert error.hint
    assert error.details["field"] == "tier"
    assert tier.url in str(error)
    assert SECRET not in f"{error} {error.as_json()}"
    return error


def test_no_such_bucket(aws: None, kit: Kit) -> None:
    tier = open_tier("s3://nobody-made-this-one/x")
    error = failure_of(tier)
    assert failure_class(error) == "missing"
    assert "bucket does not exist" in str(error)
    with pytest.raises(TierError, match="bucket does not exist"):
        push(kit.here, tier, kit.publish())


def test_permission_denied(s3: Tier, proxy: Proxy) -> None:
    proxy.fault = lambda seen: "403"
    error = failure_of(s3)
    assert failure_class(error) == "forbidden"
    assert "s3:GetObject" in str(error.hint)


def test_no_right_to_list_is_no_hindrance(s3: Tier, proxy: Proxy, kit: Kit) -> None:
    """S3 then answers 403 for what is absent."""
    proxy.fault = lambda seen: "hide"
    artifact = kit.publish()
    push(kit.here, open_tier(s3.url), kit.publish(1))
    assert find(s3, "graph", artifact.key) is None
    assert push(kit.here, s3, artifact).named
    assert pull(kit.store("there"), s3, "graph", artifact.key) is not None
    assert proxy.count("GET", "list-type") == 0


def test_an_empty_tier_without_the_right_to_list_may_be_a_forbidden_one(
    s3: Tier, proxy: Proxy
) -> None:
    proxy.fault = lambda seen: "hide"
    assert failure_class(failure_of(s3)) == "forbidden"


def test_no_answer(bucket: str, proxy: Proxy) -> None:
    proxy.fault = lambda seen: "hang"
    error = failure_of(open_tier(f"s3://{bucket}", timeout=0.2))
    assert failure_class(error) == "timeout"


def test_nobody_there(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    error = failure_of(open_tier("s3://bucket"))
    assert failure_class(error) == "unreachable"
    assert "AWS_ENDPOINT_URL" in str(error.hint)


def test_a_name_that_no_host_has(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://no-such-host.invalid")
    assert failure_class(failure_of(open_tier("s3://bucket"))) == "unreachable"


def test_something_else_answers(
    aws: None, bucket: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        import threading

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                connection.close()

        threading.Thread(target=answer, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert failure_class(failure_of(open_tier("s3://bucket"))) in ("interrupted", "other")


@pytest.mark.parametrize(
    ("status", "body", "failure", "words"),
    [
        (403, "<Code>InvalidAccessKeyId</Code>", "credentials", "AWS_ACCESS_KEY_ID"),
        (400, "<Code>ExpiredToken</Code>", "credentials", "AWS_SESSION_TOKEN"),
        (301, "<Code>PermanentRedirect</Code>", "region", "AWS_REGION"),
        (
            400,
            "<Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region>",
            "region",
            "AWS_REGION=eu-west-1",
        ),
        (405, "", "other", "AWS_ENDPOINT_URL"),
    ],
)
def test_what_s3_answers(
    aws: None,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: str,
    failure: str,
    words: str,
) -> None:
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            data = f"<Error>{body}<StringToSign>{SECRET}</StringToSign></Error>".encode()
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    error = failure_of(open_tier("s3://bucket"))
    server.shutdown()
    server.server_close()
    assert failure_class(error) == failure
    assert words in str(error.hint)


def test_no_such_directory(tmp_path: Path) -> None:
    with pytest.raises(TierError, match="does not exist") as caught:
        open_tier(f"file://{tmp_path}/none")
    assert failure_class(caught.value) == "missing"
    assert not (tmp_path / "none").exists()


def test_a_full_directory(small_disk: Path, kit: Kit) -> None:
    tier = open_tier(f"file://{small_disk}/tier", create=True)
    artifact = kit.publish(size=2 << 20)
    with pytest.raises(TierError, match="no space left") as caught:
        push(kit.here, tier, artifact)
    assert failure_class(caught.value) == "full"
    assert find(tier, "graph", artifact.key) is None


def test_a_directory_that_may_not_be_read(kit: Kit) -> None:
    """As an ordinary user: root may read everything."""
    place = kit.root / "tier" / "v1" / "actions"
    place.mkdir(parents=True)
    kit.root.chmod(0o755)
    place.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        tier = open_tier(f"file://{kit.root}/tier")
        assert failure_class(failure_of(tier)) == "forbidden"
    finally:
        if root:
            os.seteuid(0)
        place.chmod(0o755)


def test_a_read_only_directory_is_read(kit: Kit, tmp_path: Path, read_only: object) -> None:
    artifact = kit.publish()
    tier = open_tier(f"file://{tmp_path}/tier", create=True)
    push(kit.here, tier, artifact)
    assert callable(read_only)
    read_only(tmp_path / "tier")
    there = open_tier(tier.url)
    assert pull(kit.store("there"), there, "graph", artifact.key) is not None
    with pytest.raises(TierError) as caught:
        push(kit.here, there, kit.publish(1))
    assert failure_class(caught.value) == "forbidden"
