"""`build` as a command: plan, then show, check or build, then report."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from neuroncompile.backends import backend_for
from neuroncompile.errors import UsageError
from neuroncompile.output import Output
from neuroncompile.pipeline.build import Built, build_program, preflight
from neuroncompile.pipeline.plan import Plan, make_plan
from neuroncompile.pipeline.progress import Transfer
from neuroncompile.pipeline.request import BuildRequest, WayAround
from neuroncompile.pipeline.sharing import Tiers
from neuroncompile.pipeline.stores import open_store
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact, Store

if TYPE_CHECKING:
    from neuroncompile.pipeline.changes import Change

__all__ = ["announce", "build_command", "obtain", "provide"]


def build_command(
    request: BuildRequest,
    settings: Settings,
    output: Output,
    *,
    dry_run: bool = False,
    check: bool = False,
    require_cached: bool = False,
    push: bool = False,
    shard: bool = False,
    reproduce: int | None = None,
    reduce: bool = False,
) -> int:
    """Run `neuroncompile build` and return its exit code."""
    tried = (("--reproduce", reproduce is not None), ("--reduce", reduce))
    for option, given in (("--push", push), ("--shard", shard), *tried):
        if given and (dry_run or check):
            raise UsageError(
                f"{option} excludes --dry-run and --check", hint="leave one of them out"
            )
    if dry_run or check:
        plan = make_plan(request, settings, progress=Transfer(output), from_facts=True)
        for warning in plan.warnings:
            output.warn(warning)
        return _dry_run(plan, settings, output) if dry_run else _check(plan, settings, output)
    if reproduce is not None or reduce:
        from neuroncompile.pipeline.trial import reduce_command, reproduce_command

        plan = make_plan(request, settings, progress=Transfer(output))
        if reproduce is not None:
            return reproduce_command(plan, reproduce, settings, output)
        return reduce_command(plan, settings, output)
    with closing(Tiers(settings, output, push=push)) as tiers:
        built, pushed = provide(
            request, settings, output, tiers, require_cached=require_cached, push=push
        )
        more = _shards(built.plan, settings, output, tiers, push=push) if shard else {}
    output.line(f"{'hit' if built.hit else 'built'}  {built.key}")
    output.line(str(built.view))
    if shard:
        output.line(f"{'hit' if more['shards_hit'] else 'made'}   {more['shards']}  (shards)")
    output.result({**_built(built), "pushed": pushed, **more})
    return 0


def _shards(
    plan: Plan, settings: Settings, output: Output, tiers: Tiers, *, push: bool
) -> dict[str, Any]:
    if plan.backend == "cpu":
        raise UsageError(
            "--shard is for Neuron targets; the cpu target maps the checkpoint as it is",
            hint="leave --shard out",
        )
    from neuroncompile.pipeline.shards import sharded

    store = open_store(settings, output)
    made, hit = sharded(plan, settings, output, store)
    if push:
        tiers.push(store, [made])
    return {"shards": made.key, "shards_hit": hit, "shards_path": str(store.view(made))}


def obtain(
    request: BuildRequest,
    settings: Settings,
    output: Output,
    *,
    require_cached: bool = False,
    push: bool = False,
) -> Built:
    """Plan and build, and pack the weights if they have to be: all that `run` needs here."""
    with closing(Tiers(settings, output, push=push)) as tiers:
        built, _ = provide(
            request, settings, output, tiers, require_cached=require_cached, push=push
        )
    return built


def provide(
    request: BuildRequest,
    settings: Settings,
    output: Output,
    tiers: Tiers,
    *,
    require_cached: bool = False,
    push: bool = False,
) -> tuple[Built, list[str]]:
    """What was built or found, and the tiers it was pushed to."""
    built, packed = _obtain(request, settings, output, tiers, require_cached=require_cached)
    return built, _push(built, packed, settings, output, tiers) if push else []


def _obtain(
    request: BuildRequest,
    settings: Settings,
    output: Output,
    tiers: Tiers,
    *,
    require_cached: bool,
) -> tuple[Built, Artifact | None]:
    plan = make_plan(
        request,
        settings,
        progress=Transfer(output),
        before_download=None if require_cached else preflight(request, settings, tiers),
    )
    for warning in plan.warnings:
        output.warn(warning)
    announce(plan, output)
    try:
        built = build_program(plan, settings, output, tiers, require_cached=require_cached)
    except WayAround as way:  # each changes the program, and the next one asked has fewer of them
        output.warn(f"{way.reason}; building with {way.text} instead, another program")
        around = request.around(way)
        return _obtain(around, settings, output, tiers, require_cached=require_cached)
    if plan.model.weights_format != "gguf":
        return built, None
    from neuroncompile.pipeline.weights import weight_files

    weights = weight_files(plan, settings, output, tiers, require_cached=require_cached)
    return built, weights.packed


def _push(
    built: Built, packed: Artifact | None, settings: Settings, output: Output, tiers: Tiers
) -> list[str]:
    """The program last: who finds it in a tier finds its weights and graphs there, too."""
    store = open_store(settings, output)
    graphs = backend_for(built.plan.target.platform).graphs(built.plan.spec)
    found = [store.lookup("graph", graph.key) for graph in graphs if graph.key]
    return tiers.push(store, [a for a in (packed, *found, built.artifact) if a is not None])


def announce(plan: Plan, output: Output) -> None:
    """One line before anything starts: what, for which target, under which key."""
    output.note(
        f"{plan.model.name}: {plan.backend} backend, target {plan.target.text} "
        f"({plan.target_origin}), key {plan.key[:12]}"
    )


def _dry_run(plan: Plan, settings: Settings, output: Output) -> int:
    from neuroncompile.pipeline.changes import text_of
    from neuroncompile.pipeline.config_command import compiler_rows

    graphs = _graphs(plan)
    toolchain = ", ".join(f"{k} {v}" for k, v in plan.toolchain.spec().items())
    output.line(f"model      {plan.model.name}")
    if plan.draft is not None:
        output.line(f"draft      {plan.draft.name}")
    for name, adapter in plan.adapters.items():
        output.line(f"adapter    {name}: {adapter.reference}, rank {adapter.rank}")
    if plan.custom is not None:
        output.line(f"class      {plan.custom.name} of {plan.custom.source}")
    output.line(f"target     {plan.target.text}  ({plan.target_origin})")
    level = plan.optlevel or "per submodel, as the vendor"
    origin = "flag -O" if plan.request.optlevel else "default"
    output.line(f"backend    {plan.backend}, -O {level}  ({origin})")
    output.line(f"toolchain  {toolchain}  ({plan.toolchain.origin})")
    compiler = compiler_rows(plan)
    for name, value, origin in compiler:
        output.line(f"compiler   {value if name == 'args' else f'{name}={value}'}  ({origin})")
    output.line()
    rows = plan.config.rows()
    output.table(
        ("CONFIG", "VALUE", "ORIGIN"),
        [(name, text_of(value), origin) for name, value, origin in rows],
    )
    output.line()
    if graphs:
        output.table(
            ("GRAPH", "BATCH", "BUCKET"),
            [(g["name"], str(g["batch"]), str(g["bucket"])) for g in graphs],
        )
    else:
        output.line("graphs: NxD Inference derives the buckets of this configuration itself")
    output.line()
    cached = open_store(settings, output).lookup("compile", plan.key, touch=False)
    output.line(f"key  {plan.key}  ({'in the store' if cached else 'not in the store'})")
    output.result(
        {
            "key": plan.key,
            "cached": cached is not None,
            "model": plan.model.name,
            **plan.companions(),
            "backend": plan.backend,
            "target": plan.target.spec(),
            "optlevel": plan.optlevel,
            "toolchain": plan.toolchain.spec(),
            "config": [{"name": n, "value": v, "origin": o} for n, v, o in rows],
            "compiler": [{"name": n, "value": v, "origin": o} for n, v, o in compiler],
            "graphs": graphs,
            "spec": plan.spec,
        }
    )
    return 0


def _check(plan: Plan, settings: Settings, output: Output) -> int:
    with closing(Tiers(settings, output)) as tiers:
        return _look(plan, settings, output, tiers)


def _look(plan: Plan, settings: Settings, output: Output, tiers: Tiers) -> int:
    from neuroncompile.pipeline.presence import presence_of

    there = presence_of(plan, settings, output, tiers)
    found, tier, packed = there.program, there.tier, there.packed
    code = 0 if there.warm else 3
    if code:
        tiers.raise_failure()
    output.line(f"{'hit' if found else 'miss'}  {plan.key}" + (f"  in {tier}" if tier else ""))
    if packed is False:
        output.line("miss  packed weights")
    near = None if found else _nearest(plan, open_store(settings, output))
    if near is not None:
        from neuroncompile.pipeline.changes import in_words

        output.line(f"nearest  {near[0][:12]}, which differs in {in_words(near[1])}")
    output.result(
        {
            "key": plan.key,
            "cached": found,
            "source": "store" if there.artifact else "tier" if tier else None,
            "tier": tier,
            "weights_cached": packed,
            "nearest": near
            and {"key": near[0], "differences": [change.document() for change in near[1]]},
        },
        exit_code=code,
    )
    return code


def _nearest(plan: Plan, store: Store) -> tuple[str, list[Change]] | None:
    from neuroncompile.keys.explain import nearest_spec
    from neuroncompile.pipeline.changes import changes

    specs = {a.key: store.spec_of(a) for a in store.artifacts("compile")}
    key = nearest_spec(plan.spec, specs)
    if key is None:
        return None
    return key, changes(specs[key], plan.spec)


def _graphs(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "name": graph.name,
            "submodel": graph.submodel,
            "batch": graph.batch,
            "bucket": graph.bucket,
            "key": graph.key or None,
        }
        for graph in backend_for(plan.target.platform).graphs(plan.spec)
    ]


def _built(built: Built) -> dict[str, Any]:
    return {
        "key": built.plan.key,
        "hit": built.hit,
        "source": built.source,
        "tier": built.tier,
        "path": str(built.view),
        "backend": built.plan.backend,
        "target": built.plan.target.spec(),
        "model": built.plan.model.name,
        "compiled": list(built.compiled),
        "reused": list(built.reused),
        "seconds": round(built.seconds, 3),
    }
