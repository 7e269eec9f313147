"""From a failure to the next step, and to the error that a user sees."""

from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.backends.nxdi.failures import Failure, bad_output, classify
from neuroncompile.backends.nxdi.policy import Attempt, Fallback, decide, offers, to_error
from neuroncompile.errors import (
    CompileError,
    InterruptedBuildError,
    RetryError,
    RunError,
    StoreError,
)
from tests.backends.nxdi import logs

OLD = {"neuronx-cc": "2.24.5133.0"}
NEW = {"neuronx-cc": "2.26.6360.0"}
ENCODING = {"submodel": "context_encoding_model", "index": 2, "batch": 1, "bucket": 2048}
GENERATION = {"submodel": "token_generation_model", "index": 2, "batch": 4, "bucket": 2048}
NEURON: dict[str, Any] = {
    "batch_size": 4,
    "max_batch_size": 4,
    "tkg_batch_size": 4,
    "ctx_batch_size": 1,
    "seq_len": 2048,
    "max_context_length": 2048,
    "context_encoding_buckets": [128, 512, 2048],
    "token_generation_buckets": [512, 1024, 2048],
}


def failed(*said: str, toolchain: dict[str, str] = NEW, **known: Any) -> Failure:
    return classify(said, exit_code=70, toolchain=toolchain, **known)


INTERMITTENT = failed("[INTERNAL_ERROR] [NCC_IINL902] pass INL")
RACE = failed(*logs.CRASH, toolchain=OLD)
MEMORY = failed(logs.F137)
REFUSED = failed(*logs.HBM, graph=ENCODING)
BUG = failed(logs.LEGALISE)
CRASHED = failed(logs.F139)
MISSING = failed("x: error while loading shared libraries: libxml2.so.2")
FULL = failed("OSError: [Errno 28] No space left on device")
LOST = failed("Bad StatusOr access: [Errno 61] No data available")
POISONED = failed(*logs.POISONED)
STOPPED = classify(["Killed"], interrupted=True)
UNKNOWN = failed("Subcommand returned with exitcode=70")


def attempts(*failures: Failure, jobs: int = 1) -> list[Attempt]:
    return [Attempt(failure, jobs) for failure in failures]


@pytest.mark.parametrize(
    ("failures", "does"),
    [
        ([INTERMITTENT], "retry"),
        ([INTERMITTENT] * 2, "retry"),
        ([INTERMITTENT] * 3, "give_up"),
        ([RACE], "retry"),
        ([RACE] * 2, "give_up"),
        ([RACE, INTERMITTENT, RACE], "give_up"),  # the race's one retry is used up
        ([LOST], "retry"),
        ([LOST] * 2, "give_up"),
        ([bad_output("graph.neff is empty")], "retry"),
        ([bad_output("graph.neff is empty")] * 2, "give_up"),
        ([POISONED], "clean"),
        ([REFUSED], "give_up"),
        ([BUG], "give_up"),
        ([CRASHED], "give_up"),
        ([MISSING], "give_up"),
        ([FULL], "give_up"),
        ([STOPPED], "give_up"),
        ([UNKNOWN], "give_up"),
    ],
)
def test_the_next_step(failures: list[Failure], does: str) -> None:
    assert decide(attempts(*failures)).do == does


def test_a_kill_for_memory_is_tried_again_alone_and_once() -> None:
    first = decide([Attempt(MEMORY, jobs=8)])
    assert (first.do, first.jobs) == ("retry_alone", 1)
    assert decide([Attempt(MEMORY, jobs=8), Attempt(MEMORY, jobs=1)]).do == "give_up"
    assert decide([Attempt(MEMORY, jobs=1)]).do == "give_up"


def test_a_failed_entry_of_the_cache_is_removed_once() -> None:
    action = decide([Attempt(POISONED)])
    assert action.entries == POISONED.entries != ()
    assert decide([Attempt(POISONED), Attempt(POISONED, cleaned=True)]).do == "give_up"


@pytest.mark.parametrize(
    ("failure", "remember"),
    [
        (REFUSED, True),
        (BUG, True),
        (failed("[ERROR] [NCC_EARG002] no such flag"), True),
        (failed("Too many instructions after unroll"), True),
        (CRASHED, False),
        (INTERMITTENT, False),
        (RACE, False),
        (MEMORY, False),
        (MISSING, False),
        (FULL, False),
        (LOST, False),
        (POISONED, False),
        (STOPPED, False),
        (UNKNOWN, False),
        (failed(logs.MISSING_KERNEL), False),
        (classify(logs.HBM, over="time"), False),
    ],
)
def test_only_what_is_sure_to_come_again_is_remembered(failure: Failure, remember: bool) -> None:
    action = decide(attempts(*[failure] * 4), most=4)
    assert (action.do, action.remember) == ("give_up", remember)


def test_attempts_are_bounded_whatever_comes() -> None:
    alternating = [INTERMITTENT, RACE, LOST, MEMORY]
    history: list[Attempt] = []
    for step in range(20):
        history.append(Attempt(alternating[step % 4], jobs=4))
        if decide(history).do == "give_up":
            break
    assert len(history) <= 5


# ---- ways around


def test_a_way_around_is_taken_only_when_allowed() -> None:
    ways = offers(REFUSED, NEURON)
    assert [way.name for way in ways] == ["bucket", "batch"]
    assert decide(attempts(REFUSED), fallbacks=ways).do == "give_up"
    action = decide(attempts(REFUSED), fallbacks=ways, take=True)
    assert (action.do, action.fallback, action.remember) == ("fallback", ways[0], True)


def test_each_way_around_is_tried_once_and_what_was_asked_stays_rejected() -> None:
    ways = offers(REFUSED, NEURON)
    history = attempts(REFUSED)
    for way in ways:
        assert decide(history, fallbacks=ways, take=True).fallback == way
        history.append(Attempt(CRASHED, fallback=way.name))
    last = decide(history, fallbacks=ways, take=True)
    assert (last.do, last.remember) == ("give_up", True)


def test_what_failed_only_on_the_way_around_is_not_remembered() -> None:
    history = [Attempt(MEMORY), Attempt(REFUSED, fallback="-O1")]
    assert decide(history).remember is False


def test_memory_is_tried_alone_before_any_way_around() -> None:
    ways = offers(MEMORY, NEURON)
    assert [way.name for way in ways] == ["-O1", "bucket"]
    assert decide([Attempt(MEMORY, 4)], fallbacks=ways, take=True).do == "retry_alone"
    later = decide([Attempt(MEMORY, 4), Attempt(MEMORY, 1)], fallbacks=ways, take=True)
    assert later.fallback is not None
    assert later.fallback.optlevel == "1"


def test_without_the_largest_prompt_bucket() -> None:
    (way, *_) = offers(REFUSED, NEURON)
    assert way.changes == {"context_encoding_buckets": [128, 512], "max_context_length": 512}
    assert way.text == "prompts of at most 512 tokens"


def test_without_the_largest_cache_bucket_prompts_fit_too() -> None:
    (way, *_) = offers(failed(*logs.HBM, graph=GENERATION), NEURON)
    assert way.changes == {
        "token_generation_buckets": [512, 1024],
        "seq_len": 1024,
        "context_encoding_buckets": [128, 512, 1024],
        "max_context_length": 1024,
    }


def test_a_smaller_batch() -> None:
    way = offers(failed(*logs.HBM), NEURON)[-1]
    assert way.changes == {"batch_size": 2, "max_batch_size": 2, "tkg_batch_size": 2}


@pytest.mark.parametrize(
    ("graph", "neuron", "names"),
    [
        (ENCODING, {"batch_size": 1}, []),
        (ENCODING, {"batch_size": 1, "context_encoding_buckets": [128]}, []),
        ({**ENCODING, "bucket": 128}, {**NEURON, "batch_size": 1}, []),  # not the largest
        (ENCODING, {**NEURON, "batch_size": 1}, ["bucket"]),
        (GENERATION, {"batch_size": 2, "token_generation_buckets": [[1, 128], [2, 64]]}, ["batch"]),
    ],
)
def test_no_way_around_that_changes_nothing(graph: Any, neuron: Any, names: list[str]) -> None:
    assert [way.name for way in offers(failed(*logs.HBM, graph=graph), neuron)] == names


@pytest.mark.parametrize(
    ("graph", "optlevel", "levels"),
    [
        (ENCODING, None, ["2"]),  # the vendor compiles context encoding at -O1
        (GENERATION, None, ["1"]),  # and token generation at -O2
        (None, None, ["1", "2"]),
        (ENCODING, "1", ["2"]),
        (ENCODING, "3", ["1", "2"]),
    ],
)
def test_another_level_is_another_one(graph: Any, optlevel: str | None, levels: list[str]) -> None:
    ways = offers(failed(logs.LEGALISE, graph=graph), NEURON, optlevel)
    assert [way.optlevel for way in ways] == levels


def test_an_undocumented_way_is_never_offered() -> None:
    assert offers(failed("[ERROR] [NCC_EUOC002] no such operator"), NEURON) == ()
    assert offers(failed("[ERROR] [NCC_EARG002] no such flag"), NEURON) == ()


# ---- errors


@pytest.mark.parametrize(
    ("failure", "cls", "exit_code"),
    [
        (REFUSED, CompileError, 6),
        (BUG, CompileError, 6),
        (INTERMITTENT, CompileError, 6),
        (MEMORY, CompileError, 6),
        (MISSING, CompileError, 6),
        (POISONED, CompileError, 6),
        (UNKNOWN, CompileError, 6),
        (bad_output("model.pt is truncated"), CompileError, 6),
        (FULL, StoreError, 7),
        (STOPPED, InterruptedBuildError, 130),
        (LOST, RetryError, 75),
        (failed("NRT_EXEC_NC_BUSY"), RunError, 10),
        (failed("NRT_RESOURCE"), RunError, 10),
        (failed("Unable to determine Neuron Driver version"), RunError, 10),
    ],
)
def test_class_and_exit_code(failure: Failure, cls: type, exit_code: int) -> None:
    error = to_error(failure)
    assert type(error) is cls
    assert error.exit_code == exit_code


def test_what_an_error_tells() -> None:
    failure = classify(logs.HBM, graph=ENCODING, target="trn2", toolchain=NEW)
    lines = ["", *map(str, range(20)), *logs.HBM, "\n"]
    error = to_error(failure, log="/tmp/compile.log", lines=lines, key="ab" * 32)
    assert str(error).startswith("compiling context_encoding_model b1 2048 failed: at its peak")
    assert str(error).endswith("(28.4 GiB of 24.0 GiB) [NCC_EOOM002]")
    assert error.hint is not None
    assert error.hint.endswith("(log: /tmp/compile.log)")
    details = dict(error.details)
    assert details.pop("last_lines") == [*map(str, range(11, 20)), *logs.HBM]
    assert details.pop("figures")["hbm_limit"] == 24 << 30
    assert details.pop("how") == failure.reason
    assert details == {
        "code": "NCC_EOOM002",
        "class": "oom_device",
        "kind": "config",
        "graph": "context_encoding_model b1 2048",
        "submodel": "context_encoding_model",
        "index": 2,
        "bucket": 2048,
        "batch": 1,
        "target": "trn2",
        "versions": NEW,
        "meaning": failure.meaning,
        "remedy": failure.remedy,
        "line": logs.HBM[0],
        "key": "ab" * 32,
        "log": "/tmp/compile.log",
        "attempts": 1,
        "deterministic": True,
    }


def test_an_error_says_what_was_tried_and_what_could_be() -> None:
    error = to_error(INTERMITTENT, tries=3)
    assert "failed (3 times)" in str(error)
    assert error.hint is not None
    assert error.hint.startswith("--reproduce 20 measures")
    offered = to_error(REFUSED, offered=offers(REFUSED, NEURON))
    assert offered.hint is not None
    assert offered.hint.startswith(
        "--fallback builds with prompts of at most 512 tokens or a batch size of 2 instead"
    )


def test_an_interruption_is_no_failure_of_the_compiler() -> None:
    error = to_error(classify([], interrupted=True, graph=ENCODING), log="/x")
    assert str(error) == "interrupted while compiling context_encoding_model b1 2048"
    assert error.hint == "the same command goes on from there"


def test_a_fallback_is_its_name() -> None:
    assert Fallback("-O1", "-O1", "1", {}) in offers(MEMORY, {})
