"""Shards cover a matrix exactly once, stay where they are, and are read from who starts jobs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroncompile.errors import ConfigError, UsageError
from neuroncompile.pipeline.prewarm_shard import SOURCES, Shard, shard_of

values = st.one_of(st.integers(0, 99), st.booleans(), st.text(max_size=4))
cells = st.dictionaries(st.text(min_size=1, max_size=12), values, max_size=3)
programs = st.lists(st.tuples(st.text(min_size=1, max_size=8), cells), max_size=30)


def parts(count: int) -> list[Shard]:
    return [Shard(index, count, "test") for index in range(count)]


@given(programs, st.integers(1, 9))
def test_each_program_is_in_exactly_one_shard(
    wanted: list[tuple[str, dict[str, object]]], count: int
) -> None:
    for recipe, cell in wanted:
        assert sum(shard.takes(recipe, cell) for shard in parts(count)) == 1


@given(programs, programs, st.integers(2, 9))
def test_added_recipes_move_none_that_were_there(
    old: list[tuple[str, dict[str, object]]],
    added: list[tuple[str, dict[str, object]]],
    count: int,
) -> None:
    """What a shard does of the old ones is the same list, wherever new ones stand between."""
    mixed = [program for pair in zip(added, old, strict=False) for program in pair]
    mixed += old[len(added) :] + added[len(old) :]
    for shard in parts(count):
        before = [program for program in old if shard.takes(*program)]
        after = [program for program in mixed if shard.takes(*program)]
        assert [program for program in after if program in old] == [
            program for program in mixed if program in before
        ]


def test_the_order_of_a_matrix_does_not_count() -> None:
    one, two = {"config.a": 1, "config.b": 2}, {"config.b": 2, "config.a": 1}
    assert [s.takes("r", one) for s in parts(7)] == [s.takes("r", two) for s in parts(7)]


def test_the_assignment_is_the_same_on_every_host_and_in_every_version() -> None:
    """Not Python's own hash, which differs by process: caches outlive processes."""
    cell = {"config.batch_size": 4, "target.platform": "trn2"}
    where = [[s.takes(f"recipe-{n}", cell) for s in parts(3)].index(True) for n in range(12)]
    assert where == ASSIGNED


ASSIGNED = [1, 1, 1, 0, 0, 2, 0, 1, 2, 2, 1, 2]


def test_shards_are_equal_on_average() -> None:
    counts = [sum(shard.takes(f"r{n}", {}) for n in range(4000)) for shard in parts(4)]
    assert all(850 < count < 1150 for count in counts)


SLURM = {
    "SLURM_ARRAY_TASK_ID": "5",
    "SLURM_ARRAY_TASK_MIN": "1",
    "SLURM_ARRAY_TASK_MAX": "7",
    "SLURM_ARRAY_TASK_COUNT": "4",
    "SLURM_ARRAY_TASK_STEP": "2",
}


@pytest.mark.parametrize(
    ("environ", "of", "index", "count"),
    [
        ({"AWS_BATCH_JOB_ARRAY_INDEX": "0", "AWS_BATCH_JOB_ARRAY_SIZE": "4"}, None, 0, 4),
        ({"AWS_BATCH_JOB_ARRAY_INDEX": "3"}, 4, 3, 4),
        ({"JOB_COMPLETION_INDEX": "2"}, 3, 2, 3),
        ({"JOB_COMPLETION_INDEX": "2", "JOB_COMPLETIONS": "3"}, None, 2, 3),
        ({"JOB_COMPLETION_INDEX": "2", "JOB_COMPLETIONS": "3"}, 3, 2, 3),
        (SLURM, None, 2, 4),
        (
            {
                "SLURM_ARRAY_TASK_ID": "0",
                "SLURM_ARRAY_TASK_MIN": "0",
                "SLURM_ARRAY_TASK_COUNT": "2",
            },
            None,
            0,
            2,
        ),
        ({"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "4"}, None, 0, 4),
        ({"CI_NODE_INDEX": "4", "CI_NODE_TOTAL": "4"}, None, 3, 4),
        ({"CIRCLE_NODE_INDEX": "3", "CIRCLE_NODE_TOTAL": "4"}, None, 3, 4),
        ({"BUILDKITE_PARALLEL_JOB": "0", "BUILDKITE_PARALLEL_JOB_COUNT": "2"}, None, 0, 2),
        (
            {
                "CIRCLE_NODE_INDEX": "0",
                "CIRCLE_NODE_TOTAL": "1",
                "CI_NODE_INDEX": "2",
                "CI_NODE_TOTAL": "2",
            },
            None,
            1,
            2,
        ),
    ],
)
def test_a_job_knows_its_part(
    environ: Mapping[str, str], of: int | None, index: int, count: int
) -> None:
    shard = shard_of(None, of, environ)
    assert shard is not None
    assert (shard.index, shard.count) == (index, count)
    assert str(shard) == f"{index + 1}/{count}"
    origin, _, system = shard.origin.partition(", ")
    variable, _, value = origin.partition("=")
    assert environ[variable] == value
    assert system in [source.system for source in SOURCES]


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"CI_NODE_TOTAL": "1"},  # as GitLab sets it in a job that is not parallel
        {"CIRCLE_NODE_INDEX": "0", "CIRCLE_NODE_TOTAL": "1"},  # as CircleCI always does
        {"JOB_COMPLETION_INDEX": ""},
    ],
)
def test_a_job_that_is_alone_does_everything(environ: Mapping[str, str]) -> None:
    assert shard_of(None, None, environ) is None


def test_the_flag_wins() -> None:
    shard = shard_of("2/3", None, {"JOB_COMPLETION_INDEX": "7", **SLURM})
    assert shard == Shard(1, 3, "--shard")
    assert shard_of("1/1", None, {"JOB_COMPLETION_INDEX": "7"}) is None


@pytest.mark.parametrize("text", ["0/2", "3/2", "2", "2/", "/2", "a/b", "-1/2", "1/2/3", "1 / 2"])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        shard_of(text, None, {})
    assert caught.value.field == "shard"
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "of", "said"),
    [
        ({"JOB_COMPLETION_INDEX": "1"}, None, "of how many"),
        ({"AWS_BATCH_JOB_ARRAY_INDEX": "1"}, None, "of how many"),
        ({}, 4, "which of them"),
        ({"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "4"}, 3, "CI_NODE_TOTAL is 4"),
        (
            {
                "JOB_COMPLETION_INDEX": "1",
                "JOB_COMPLETIONS": "2",
                "CI_NODE_INDEX": "1",
                "CI_NODE_TOTAL": "2",
            },
            None,
            "more than one count",
        ),
    ],
)
def test_half_a_place_is_refused(environ: Mapping[str, str], of: int | None, said: str) -> None:
    """A guess would leave programs out, and nobody would notice."""
    with pytest.raises(UsageError, match=said) as caught:
        shard_of(None, of, environ)
    assert "--shard" in str(caught.value.hint) or "--of" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("environ", "field"),
    [
        ({"JOB_COMPLETION_INDEX": "2", "JOB_COMPLETIONS": "2"}, "JOB_COMPLETION_INDEX"),
        ({"CI_NODE_INDEX": "0", "CI_NODE_TOTAL": "2"}, "CI_NODE_INDEX"),
        ({"CI_NODE_INDEX": "x", "CI_NODE_TOTAL": "2"}, "CI_NODE_INDEX"),
        ({"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "many"}, "CI_NODE_TOTAL"),
        ({**SLURM, "SLURM_ARRAY_TASK_ID": "4"}, "SLURM_ARRAY_TASK_ID"),
        ({**SLURM, "SLURM_ARRAY_TASK_MAX": "9"}, "SLURM_ARRAY_TASK_ID"),  # --array=1,3,5,9
        ({"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "2"}, "SLURM_ARRAY_TASK_MIN"),
    ],
)
def test_impossible_variables_are_named(environ: Mapping[str, str], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        shard_of(None, None, environ)
    assert caught.value.field == field
    assert "--shard I/N" in str(caught.value.hint)
