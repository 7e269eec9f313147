"""An HTTP proxy in front of an object store that breaks what it is told to, and counts bytes."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fault = Callable[["Seen"], str | None]
"""Says for a request what happens to it: None, `reset`, `503`, `403`, `hang`, `short`, `cut`,
`flip`, `slow`, or `hide` (what is absent is 403, as S3 answers without the right to list)."""


@dataclass
class Seen:
    """A request, and how many bytes of body went back."""

    method: str
    path: str
    range: str | None
    number: int
    sent: int = 0
    status: int = 0

    @property
    def blob(self) -> str | None:
        """Hex digest of the blob that was asked for."""
        head, _, name = self.path.partition("?")[0].rpartition("/")
        return name if head.endswith("/blobs/sha256") else None


@dataclass
class Proxy:
    """A running proxy; `fault` may be set at any time."""

    upstream: str
    fault: Fault | None = None
    seen: list[Seen] = field(default_factory=list)
    piece: int = 16 << 10
    pause: float = 0.02

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self.stopped = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def note(self, method: str, path: str, wanted: str | None) -> Seen:
        with self._lock:
            self.seen.append(Seen(method, path, wanted, len(self.seen)))
            return self.seen[-1]

    def sent(self, name: str | None = None) -> int:
        """Bytes of blob bodies that went out to readers, of one blob or of all."""
        return sum(
            s.sent for s in self.seen if s.method == "GET" and s.blob and name in (None, s.blob)
        )

    def count(self, method: str, part: str = "") -> int:
        return sum(s.method == method and part in s.path for s in self.seen)


def _handler(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def forward(self) -> None:
            seen = proxy.note(self.command, self.path, self.headers.get("Range"))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = proxy.fault(seen) if proxy.fault else None
            if fault == "reset":
                self._reset()
            elif fault in ("503", "403"):
                self._refuse(seen, int(fault))
            elif fault == "hang":
                proxy.stopped.wait(60)
                self.close_connection = True
            else:
                self._pass(seen, body, fault)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = forward  # noqa: N815

        def _pass(self, seen: Seen, body: bytes, fault: str | None) -> None:
            host, _, port = proxy.upstream.removeprefix("http://").partition(":")
            connection = http.client.HTTPConnection(host, int(port), timeout=60)
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            if fault == "hide" and answer.status == 404:
                self._refuse(seen, 403)
                return
            if data and fault == "flip":
                data = bytes([data[0] ^ 1]) + data[1:]
            if fault == "cut":
                data = data[: len(data) // 2]
            seen.status = answer.status
            self.send_response(answer.status)
            length = answer.headers["Content-Length"] if self.command == "HEAD" else str(len(data))
            for name, value in answer.headers.items():
                if name.lower() not in (
                    "content-length",
                    "connection",
                    "transfer-encoding",
                    "date",
                    "server",
                ):
                    self.send_header(name, value)
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            if self.command == "HEAD":
                return
            if fault == "short":
                self._send(seen, data[: len(data) // 2])
                self.wfile.flush()
                self._reset()
                return
            if fault == "slow":
                for start in range(0, len(data), proxy.piece):
                    self._send(seen, data[start : start + proxy.piece])
                    time.sleep(proxy.pause)
                return
            self._send(seen, data)

        def _send(self, seen: Seen, data: bytes) -> None:
            try:
                self.wfile.write(data)
                seen.sent += len(data)
            except OSError:
                self.close_connection = True

        def _refuse(self, seen: Seen, status: int) -> None:
            code = {503: "SlowDown", 403: "AccessDenied"}[status]
            key = "AKIDEXAMPLE"  # S3 repeats the access key in some of its answers
            text = f"<Error><Code>{code}</Code><AWSAccessKeyId>{key}</AWSAccessKeyId></Error>"
            data = b"" if self.command == "HEAD" else text.encode()
            seen.status = status
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _reset(self) -> None:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
            self.connection.close()

    return Handler
