"""A small Hugging Face Hub on 127.0.0.1, for the real client to talk to.

What the real one answers: `/api/models/<repo>[/revision/<rev>|/tree/<rev>]`, and
`/<repo>/resolve/<rev>/<file>` with `X-Repo-Commit`, `ETag` and, for LFS files, a redirect to a
CDN on another host.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LFS = (".safetensors", ".bin", ".gguf")


@dataclass
class Repo:
    """commits: sha → file → bytes; branches: name → sha."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    private: bool = False

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        sha = hashlib.sha1(
            repr(sorted((n, hashlib.sha1(b).hexdigest()) for n, b in files.items())).encode()
        ).hexdigest()
        self.commits[sha] = files
        self.branches[branch] = sha
        return sha

    def sha_of(self, revision: str) -> str | None:
        if revision in self.commits:
            return revision
        return self.branches.get(revision)


@dataclass
class Hub:
    """The server's state and what it was asked.

    Attributes:
        tokens: token → whether its account was given access to gated repositories.
        status: answer everything with this status instead.
        retry_after: seconds, sent with that status.
        hold: files of which half is sent, and then nothing for as long as the server lives; a
            request for a range of one is answered.
        cut: files of which half is sent before the connection breaks; as `hold` else.
        spoil: file names whose bytes are sent with one bit flipped.
        requests: "METHOD /path" in order.
        cdn_headers: headers that reached the CDN.
    """

    endpoint: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    tokens: dict[str, bool] = field(default_factory=dict)
    status: int | None = None
    retry_after: int | None = None
    html: bool = False
    hold: set[str] = field(default_factory=set)
    held: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)
    cut: set[str] = field(default_factory=set)
    spoil: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    cdn_headers: list[dict[str, str]] = field(default_factory=list)

    def repo(self, name: str, files: dict[str, bytes] | None = None, **flags: Any) -> Repo:
        repo = self.repos[name] = Repo(**flags)
        if files is not None:
            repo.commit(files)
        return repo


@contextmanager
def serve() -> Iterator[Hub]:
    hub = Hub()

    class Handler(_Handler):
        state = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread.start()
    try:
        yield hub
    finally:
        hub.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._route()

    def do_GET(self) -> None:
        self._route()

    def _route(self) -> None:
        hub = self.state
        path = unquote(urlsplit(self.path).path)
        hub.requests.append(f"{self.command} {path}")
        if path.startswith("/cdn/"):
            hub.cdn_headers.append({k.lower(): v for k, v in self.headers.items()})
            repo, sha, name = path.removeprefix("/cdn/").split("!")
            self._file(hub.repos[repo].commits[sha][name], name, {})
            return
        if hub.status is not None:
            wait = {} if hub.retry_after is None else {"Retry-After": str(hub.retry_after)}
            self._send(hub.status, b'{"error": "no"}', wait)
            return
        if hub.html:
            self._send(
                200, b"<html>Please log in to the wifi</html>", {"Content-Type": "text/html"}
            )
            return
        if path.startswith("/api/models/"):
            rest = path.removeprefix("/api/models/")
            for call in ("/revision/", "/tree/"):
                if call in rest:
                    name, _, revision = rest.partition(call)
                    self._api(name, revision, tree=call == "/tree/")
                    return
            self._api(rest, "main")
            return
        name, _, rest = path[1:].partition("/resolve/")
        revision, _, file = rest.partition("/")
        self._resolve(name, revision, file)

    def _token(self) -> str | None:
        header = self.headers.get("Authorization")
        return header.removeprefix("Bearer ") if header else None

    def _allowed(self, name: str, *, content: bool) -> bool:
        hub, token = self.state, self._token()
        if token is not None and token not in hub.tokens:
            self._send(
                401, b"{}", {"X-Error-Message": "Invalid credentials in Authorization header"}
            )
            return False
        repo = hub.repos.get(name)
        if repo is None or (repo.private and token is None):
            code = 404 if token else 401
            self._send(code, b"{}", {"X-Error-Code": "RepoNotFound"} if token else {})
            return False
        if repo.gated and content and not hub.tokens.get(token or "", False):
            self._send(403 if token else 401, b"{}", {"X-Error-Code": "GatedRepo"})
            return False
        return True

    def _api(self, name: str, revision: str, *, tree: bool = False) -> None:
        # the real Hub tells everybody what a gated repository holds, and refuses its content
        if not self._allowed(name, content=False):
            return
        repo = self.state.repos[name]
        sha = repo.sha_of(revision)
        if sha is None:
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            return
        siblings: list[dict[str, Any]] = []
        entries: list[dict[str, Any]] = []
        for file, data in repo.commits[sha].items():
            entry: dict[str, Any] = {"rfilename": file, "size": len(data), "blobId": _oid(data)}
            if file.endswith(LFS):
                digest = hashlib.sha256(data).hexdigest()
                entry["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 130}
            siblings.append(entry)
            lfs = {"oid": entry["lfs"]["sha256"], **entry["lfs"]} if "lfs" in entry else None
            entries.append(
                {"type": "file", "path": file, "size": len(data), "oid": entry["blobId"]}
                | ({"lfs": lfs} if lfs else {})
            )
        answer = entries if tree else {"id": name, "sha": sha, "siblings": siblings}
        self._send(200, json.dumps(answer).encode())

    def _resolve(self, name: str, revision: str, file: str) -> None:
        if not self._allowed(name, content=True):
            return
        repo = self.state.repos[name]
        sha = repo.sha_of(revision)
        if sha is None:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
            return
        headers = {"X-Repo-Commit": sha}
        data = repo.commits[sha].get(file)
        if data is None:
            self._send(404, b"", headers | {"X-Error-Code": "EntryNotFound"})
            return
        if file.endswith(LFS):
            port = urlsplit(self.state.endpoint).port
            headers |= {
                "X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"',
                "X-Linked-Size": str(len(data)),
                "Location": f"http://localhost:{port}/cdn/{name}!{sha}!{file}",
            }
            self._send(302, b"", headers)
            return
        self._file(data, file, headers | {"ETag": f'"{_oid(data)}"'})

    def _file(self, data: bytes, name: str, headers: dict[str, str]) -> None:
        if name in self.state.spoil and self.command == "GET":
            data = data[:-1] + bytes([data[-1] ^ 1])
        status, wanted = 200, self.headers.get("Range")
        if wanted:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last or len(data)) + 1, len(data))
            headers = headers | {"Content-Range": f"bytes {begin}-{end - 1}/{len(data)}"}
            status, data = 206, data[begin:end]
        whole = status == 200
        hold, cut = whole and name in self.state.hold, whole and name in self.state.cut
        self._send(status, data, headers, hold=hold, cut=cut)

    def _send(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        *,
        hold: bool = False,
        cut: bool = False,
    ) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body[: len(body) // 2] if hold or cut else body)
        if cut:
            self.wfile.flush()
            self.close_connection = True
        if hold:
            self.wfile.flush()
            self.state.held.set()
            self.state.closing.wait(60)
            self.close_connection = True


def _oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
