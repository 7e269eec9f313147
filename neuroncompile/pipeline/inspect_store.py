"""`store ls`, `store show`, `store path` and `explain`: what is kept, and why keys differ."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neuroncompile.errors import ConfigError
from neuroncompile.keys.explain import nearest_spec
from neuroncompile.output import Output, age, human_bytes
from neuroncompile.pipeline.amounts import parse_seconds
from neuroncompile.pipeline.changes import Change, changes
from neuroncompile.pipeline.stores import open_store
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact, Store

__all__ = ["explain_command", "ls_command", "path_command", "show_command"]


KINDS = ("compile", "graph", "pack", "shard")


SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "used": lambda row: -row["last_used"],
    "size": lambda row: -row["bytes"],
    "unique": lambda row: -row["unique_bytes"],
    "kind": lambda row: (row["kind"], row["what"], row["key"]),
    "key": lambda row: row["key"],
}


def ls_command(
    settings: Settings,
    output: Output,
    *,
    kind: str | None = None,
    match: str = "",
    unused: str = "",
    sort: str = "used",
    limit: int = 0,
) -> int:
    """List artifacts, most recently used first unless sorted otherwise."""
    _one_of("kind", kind, KINDS)
    _one_of("sort", sort, tuple(SORTS))
    before = time.time() - parse_seconds(unused, "unused") if unused else math.inf
    store = open_store(settings, output)
    rows = []
    for found in store.rows(kind):
        row: dict[str, Any] = {
            "key": found.key,
            "kind": found.kind,
            "what": _what(found.kind, found.spec, None)
            if found.kind != "pack"
            else _pack(store, found.key, found.spec),
            "bytes": found.size.logical,
            "shared_bytes": found.size.shared,
            "unique_bytes": found.size.unique,
            "last_used": found.used,
            "store": str(found.home),
        }
        text = f"{row['key']} {row['kind']} {row['what']}".lower()
        if found.used <= before and match.lower() in text:
            rows.append(row)
    rows.sort(key=SORTS[sort])
    count = len(rows)
    rows = rows[: limit or None]
    if not count:
        filtered = " that match" if kind or match or unused else ""
        output.note(f"{settings.store} ({settings.store_origin}) holds no artifacts{filtered}")
    else:
        output.table(
            ("KEY", "KIND", "WHAT", "SIZE", "UNIQUE", "USED"),
            [
                (
                    r["key"][:12],
                    r["kind"],
                    r["what"],
                    human_bytes(r["bytes"]),
                    human_bytes(r["unique_bytes"]),
                    age(r["last_used"]),
                )
                for r in rows
            ],
        )
    if len(rows) < count:
        output.note(f"{count - len(rows)} more; --limit 0 shows all")
    output.result({"store": str(settings.store), "artifacts": rows, "found": count})
    return 0


def _one_of(field: str, value: str | None, legal: Sequence[str]) -> None:
    if value is not None and value not in legal:
        raise ConfigError(
            f"no {field} {value!r}",
            field=field,
            value=value,
            legal=list(legal),
            hint=f"--{field} " + ", ".join(legal[:-1]) + f" or {legal[-1]}",
        )


def show_command(text: str, settings: Settings, output: Output) -> int:
    """One artifact: identity, files, spec, provenance."""
    store = open_store(settings, output)
    artifact = store.find(text)
    spec = store.spec_of(artifact)
    summary = _summary(store, artifact)
    provenance = store.provenance_of(artifact)
    output.line(f"key       {artifact.key}")
    output.line(f"kind      {artifact.kind}: {summary['what']}")
    output.line(f"manifest  {artifact.manifest_digest}")
    output.line(f"used      {age(summary['last_used'])}")
    for name, value in (provenance or {}).items():
        output.line(
            f"{_printable(name):<9} {_short(value)}",
        )
    output.line()
    output.table(
        ("FILE", "SIZE", "DIGEST"),
        [
            (d.title, human_bytes(d.size), d.digest.removeprefix("sha256:")[:16])
            for d in artifact.layers
        ],
    )
    output.line()
    output.line(json.dumps(spec, indent=2, sort_keys=True))
    output.result(
        {
            **summary,
            "manifest": artifact.manifest_digest,
            "files": [
                {"title": d.title, "size": d.size, "digest": d.digest, "media_type": d.media_type}
                for d in artifact.layers
            ],
            "spec": spec,
            "provenance": provenance,
        }
    )
    return 0


def path_command(text: str, settings: Settings, output: Output) -> int:
    """The view directory of one artifact."""
    store = open_store(settings, output)
    artifact = store.find(text)
    path = store.view(artifact)
    output.line(str(path))
    output.result({"key": artifact.key, "path": str(path)})
    return 0


def explain_command(text: str, other: str | None, settings: Settings, output: Output) -> int:
    """Differing fields of two keys, or of one key and its nearest neighbour."""
    store = open_store(settings, output)
    left = store.find(text)
    spec = store.spec_of(left)
    if other is not None:
        right: Artifact | None = store.find(other)
    else:
        candidates = {
            a.key: store.spec_of(a) for a in store.artifacts(left.kind) if a.key != left.key
        }
        key = nearest_spec(spec, candidates)
        right = store.find(key) if key else None
        output.line(f"{left.key[:12]}  {_what(left.kind, spec, store.provenance_of(left))}")
    if right is None:
        output.line("no other artifact of its kind to compare with")
        output.result({"key": left.key, "spec": spec, "other": None, "differences": []})
        return 0
    found = changes(spec, store.spec_of(right))
    _show_differences(left, right, found, output)
    output.result(
        {
            "key": left.key,
            "spec": spec,
            "other": right.key,
            "differences": [change.document() for change in found],
        }
    )
    return 0


def _show_differences(
    left: Artifact, right: Artifact, found: Sequence[Change], output: Output
) -> None:
    if not found:
        output.line(f"{left.key[:12]} and {right.key[:12]} are the same")
        return
    own = sum(not change.follows for change in found)
    more = f", and {len(found) - own} that follow" if own < len(found) else ""
    output.line(f"{own} field{'s differ' if own > 1 else ' differs'}{more}:")
    output.table(
        ("FIELD", left.key[:12], right.key[:12], ""),
        [(d.path, _short(d.left), _short(d.right), "follows" if d.follows else "") for d in found],
    )


def _summary(store: Store, artifact: Artifact) -> dict[str, Any]:
    return {
        "key": artifact.key,
        "kind": artifact.kind,
        "what": _what(artifact.kind, store.spec_of(artifact), store.provenance_of(artifact)),
        "bytes": sum(d.size for d in artifact.layers),
        "last_used": store.last_used(artifact),
    }


def _what(kind: str, spec: Mapping[str, Any], provenance: Mapping[str, Any] | None) -> str:
    """A line that tells artifacts of one kind apart; an imported one may be odd."""
    try:
        text = _described(kind, spec, provenance)
    except (KeyError, TypeError, AttributeError, IndexError):
        text = "?"
    return _printable(text)


def _described(kind: str, spec: Mapping[str, Any], provenance: Mapping[str, Any] | None) -> str:
    if kind == "compile":
        neuron, target = spec["neuron"], spec["target"]
        names = spec["model"].get("architectures") or ["?"]
        return (
            f"{names[0]} {target.get('isa') or target['platform']} "
            f"{neuron.get('torch_dtype')} batch {neuron.get('batch_size')} "
            f"seq {neuron.get('seq_len')}"
        )
    if kind == "graph":
        bucket = "" if spec["region"] == "edge" else f" bucket {spec['bucket']}"
        return f"{spec['submodel']} {spec['region']} {spec['dtype']} batch {spec['batch']}{bucket}"
    name = (provenance or {}).get("model")
    of = f"weights of {name}" if name else "weights"
    if spec["kind"] == "shard":
        neuron = spec["neuron"]
        count = neuron.get("local_ranks_size") or neuron.get("tp_degree") or 1
        ranks = f"{count} rank" + ("s" if count != 1 else "")
        return f"{of} in {neuron.get('torch_dtype')}, cut for {ranks}"
    return f"{of} in {spec.get('dtype')}"


def _pack(store: Store, key: str, spec: Mapping[str, Any]) -> str:
    """Only provenance tells whose weights these are."""
    artifact = store.lookup("pack", key, verify="none", touch=False)
    return _what("pack", spec, None if artifact is None else store.provenance_of(artifact))


def _printable(text: str) -> str:
    """Without what could move a terminal's cursor or worse."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _short(value: Any) -> str:
    text = _printable(value if isinstance(value, str) else json.dumps(value))
    return text if len(text) <= 48 else text[:45] + "..."
