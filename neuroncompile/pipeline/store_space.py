"""`store du`, `store stats`, `store gc`: what the store takes, what it saves, what may go."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

from neuroncompile.output import Output, age, human_bytes, human_seconds
from neuroncompile.pipeline.amounts import parse_bytes, parse_seconds
from neuroncompile.pipeline.stores import open_store, say_if_absent
from neuroncompile.settings import Settings
from neuroncompile.store.gc import GRACE_SECONDS, Policy, Sweep
from neuroncompile.store.usage import tree_bytes

__all__ = ["du_command", "gc_command", "stats_command"]

REMOVED = {
    "age": "not used for longer than --max-age",
    "size": "least recently used, above --max-size",
    "broken": "a file is missing",
}
KEPT = {
    "pin": "pinned",
    "ref": "named",
    "lease": "in use by a process",
    "recent": "used within the grace period",
    "keep": "kept by --keep or --keep-last",
    "shared": "graphs of programs that stay",
    "fits": "within the limits",
}


def du_command(settings: Settings, output: Output) -> int:
    """Bytes by kind, and what is around them."""
    store = open_store(settings, output)
    say_if_absent(settings, output)
    usage = store.usage()
    models = tree_bytes(settings.store / "models")
    headers = tree_bytes(settings.cache / "headers")
    rows = [
        (kind, str(count), human_bytes(size)) for kind, (count, size) in sorted(usage.kinds.items())
    ]
    output.table(("KIND", "ARTIFACTS", "BYTES"), rows or [("-", "0", human_bytes(0))])
    output.line()
    output.line(f"blobs      {human_bytes(usage.total)} in {usage.blobs}, each counted once")
    output.line(f"unnamed    {human_bytes(usage.unnamed)} that `store gc` frees after a day")
    output.line(f"unfinished {human_bytes(usage.unfinished)} of builds and downloads")
    output.line(f"models     {human_bytes(models)} fetched or derived, in {settings.store}/models")
    output.line(f"headers    {human_bytes(headers)} precompiled, in {settings.cache}/headers")
    output.result(
        {
            "store": str(settings.store),
            "kinds": {k: {"artifacts": n, "bytes": size} for k, (n, size) in usage.kinds.items()},
            "blobs": usage.blobs,
            "bytes": usage.total,
            "unnamed_bytes": usage.unnamed,
            "unfinished_bytes": usage.unfinished,
            "models_bytes": models,
            "headers_bytes": headers,
        }
    )
    return 0


def stats_command(settings: Settings, output: Output) -> int:
    """Hits and misses, and what the hits saved."""
    found = open_store(settings, output).totals()
    if not found.since:
        output.note(f"{settings.store} ({settings.store_origin}) has counted nothing yet")
    else:
        output.line(f"hits      {found.hits} of {found.hits + found.misses} ({found.rate:.0%})")
        output.line(f"misses    {found.misses}")
        output.line(f"saved     {human_seconds(found.seconds)} of compiling")
        output.line(f"served    {human_bytes(found.bytes)} of programs")
        output.line(f"since     {age(found.since)}")
    output.result({**asdict(found), "hit_rate": round(found.rate, 4), "store": str(settings.store)})
    return 0


def gc_command(
    settings: Settings,
    output: Output,
    *,
    max_size: str = "",
    max_age: str = "",
    grace: str = "",
    keep: tuple[str, ...] = (),
    keep_last: int = 0,
    yes: bool = False,
) -> int:
    """Remove what nothing needs; without `yes` only say what that would be."""
    store = open_store(settings, output)
    policy = Policy(
        max_bytes=parse_bytes(max_size, "max_size") if max_size else None,
        max_age=parse_seconds(max_age, "max_age") if max_age else None,
        grace=parse_seconds(grace, "grace") if grace else GRACE_SECONDS,
        keep_last=keep_last,
        keep=tuple(store.find(key).key for key in keep),
    )
    say_if_absent(settings, output)
    sweep = store.collect(policy, dry_run=not yes)
    _say(sweep, policy, output)
    output.result({"store": str(settings.store), **asdict(sweep)})
    return 0


def _say(sweep: Sweep, policy: Policy, output: Output) -> None:
    would = "would remove" if sweep.dry_run else "removed"
    output.line(
        f"{would} {len(sweep.removed)} artifacts and {sweep.blobs} blobs: "
        f"{human_bytes(sweep.freed)} of {human_bytes(sweep.bytes_before)}"
    )
    for reason, count in Counter(r.reason for r in sweep.removed).items():
        freed = sum(r.freed for r in sweep.removed if r.reason == reason)
        output.line(f"  {reason:<8} {count:>6}  {human_bytes(freed):>9}  {REMOVED[reason]}")
    if sweep.leftovers:
        output.line(f"  leftover {sweep.leftovers:>6}             of what died or is gone")
    output.line("keeps" if sweep.kept else "keeps no artifact")
    for reason, kept in sweep.kept.items():
        size = human_bytes(kept.bytes)
        output.line(f"  {reason:<8} {kept.artifacts:>6}  {size:>9}  {KEPT[reason]}")
    if sweep.waiting:
        output.line(
            f"  waiting          {human_bytes(sweep.waiting):>9}  unnamed, within its grace"
        )
    if sweep.excess:
        output.warn(
            f"{human_bytes(sweep.excess)} above --max-size cannot go"
            + ("; --grace 0 also takes what was used lately" if policy.grace else "")
        )
    if sweep.dry_run and (sweep.removed or sweep.blobs or sweep.leftovers):
        output.note("nothing was removed; add --yes to do it")
