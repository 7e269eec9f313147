"""`store pin|unpin|rm|verify`: keep, remove and repair single artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from neuroncompile.errors import CorruptArtifactError, StoreError
from neuroncompile.output import Output, human_bytes
from neuroncompile.pipeline.stores import open_store, say_if_absent
from neuroncompile.settings import Settings

__all__ = ["pin_command", "rm_command", "unpin_command", "verify_command"]


def pin_command(text: str, name: str, settings: Settings, output: Output) -> int:
    """Keep an artifact from the collector under a name; its key's first digits by default."""
    store = open_store(settings, output)
    artifact = store.find(text)
    chosen = name or f"key-{artifact.key[:12]}"
    store.pin(chosen, artifact)
    output.line(f"{chosen} keeps {artifact.kind} {artifact.key[:12]}")
    output.result({"pin": chosen, "kind": artifact.kind, "key": artifact.key})
    return 0


def unpin_command(name: str, settings: Settings, output: Output) -> int:
    """Take a pin away, by its name or by what it keeps."""
    store = open_store(settings, output)
    pins = {n.removeprefix("pins/"): m for n, m in store.refs().items() if n.startswith("pins/")}
    names = [name] if name in pins else []
    if not names:
        try:
            manifest = store.find(name).manifest_digest
            names = [pin for pin, digest in pins.items() if digest == manifest]
        except StoreError:
            names = []
    if not names:
        raise StoreError(
            f"no pin {name!r}",
            hint=f"pins here: {', '.join(sorted(pins))}" if pins else "nothing is pinned here",
            details={"pins": sorted(pins)},
        )
    for pin in names:
        store.unpin(pin)
    output.line(f"unpinned {', '.join(names)}")
    output.result({"unpinned": names})
    return 0


def rm_command(texts: Sequence[str], settings: Settings, output: Output, *, force: bool) -> int:
    """Remove artifacts with what only they have."""
    store = open_store(settings, output)
    artifacts = [store.find(text) for text in texts]  # all are there before any is removed
    removed = []
    for artifact in artifacts:
        freed = store.remove(artifact, force=force)
        removed.append({"kind": artifact.kind, "key": artifact.key, "freed": freed})
        output.line(f"removed {artifact.kind} {artifact.key[:12]}, {human_bytes(freed)} freed")
    output.result({"removed": removed})
    return 0


def verify_command(settings: Settings, output: Output, *, repair: bool) -> int:
    """Hash everything and follow every name; exit 7 when something is wrong and not repaired."""
    store = open_store(settings, output)

    say_if_absent(settings, output)

    def progress(done: int, total: int) -> None:
        output.progress(f"verifying {human_bytes(done)} of {human_bytes(total)}")

    found = store.check(repair=repair, on_progress=progress)
    for problem in found.problems:
        state = "  (repaired)" if problem.repaired else ""
        output.line(f"{problem.what} {problem.name}: {problem.why}{state}")
    said = f"{found.artifacts} artifacts, {found.blobs} blobs, {human_bytes(found.bytes)} hashed"
    left = [p for p in found.problems if not p.repaired]
    output.line(f"{said}: {_verdict(len(found.problems), len(left))}")
    if left:
        raise CorruptArtifactError(
            f"{len(left)} of {len(found.problems)} problems in {settings.store} are not repaired",
            hint="neuroncompile store verify --repair",
            details=asdict(found),
        )
    output.result({"store": str(settings.store), **asdict(found)})
    return 0


def _verdict(problems: int, left: int) -> str:
    if not problems:
        return "nothing is wrong"
    return f"{problems} wrong" if left else f"{problems} repaired; build again what is missing"
