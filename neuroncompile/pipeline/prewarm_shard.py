"""Which part of a matrix a job does, from `--shard I/N` or from the system that started the job.

A program belongs to a shard by the hash of its recipe's name and its point of the matrix. So
every program is in exactly one shard whatever is planned, and adding recipes, or points to other
recipes, moves none that were there: what a shard's host has cached stays useful. The price is
that shards are equal only on average.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neuroncompile.errors import ConfigError, UsageError

__all__ = ["SOURCES", "Shard", "Source", "shard_of"]


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` parts; `index` counts from 0, `str()` from 1."""

    index: int
    count: int
    origin: str

    def __str__(self) -> str:
        return f"{self.index + 1}/{self.count}"

    def takes(self, recipe: str, cell: Mapping[str, Any]) -> bool:
        """Whether the program of a recipe's name and a point of its matrix is in this part."""
        text = json.dumps([recipe, cell], sort_keys=True, separators=(",", ":"), default=str)
        digest = hashlib.sha256(text.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index


@dataclass(frozen=True, slots=True)
class Source:
    """What a system tells its jobs.

    Attributes:
        system: its name.
        index: variable with the job's number.
        first: number of the first job, or the variable that has it.
        count: variable with how many jobs there are.
        step: variable with the distance between numbers, if it need not be 1.
        last: variable with the number of the last job, where numbers may be any.
    """

    system: str
    index: str
    first: int | str
    count: str
    step: str = ""
    last: str = ""


SOURCES = (
    Source("AWS Batch array job", "AWS_BATCH_JOB_ARRAY_INDEX", 0, "AWS_BATCH_JOB_ARRAY_SIZE"),
    Source("Kubernetes Indexed Job", "JOB_COMPLETION_INDEX", 0, "JOB_COMPLETIONS"),
    Source(
        "Slurm job array",
        "SLURM_ARRAY_TASK_ID",
        "SLURM_ARRAY_TASK_MIN",
        "SLURM_ARRAY_TASK_COUNT",
        "SLURM_ARRAY_TASK_STEP",
        "SLURM_ARRAY_TASK_MAX",
    ),
    Source("GitLab CI", "CI_NODE_INDEX", 1, "CI_NODE_TOTAL"),
    Source("CircleCI", "CIRCLE_NODE_INDEX", 0, "CIRCLE_NODE_TOTAL"),
    Source("Buildkite", "BUILDKITE_PARALLEL_JOB", 0, "BUILDKITE_PARALLEL_JOB_COUNT"),
)
"""From docs.aws.amazon.com/batch (job_env_vars), kubernetes.io (indexed-parallel-processing),
slurm.schedmd.com (sbatch, output environment variables), docs.gitlab.com (predefined_variables),
circleci.com/docs (variables) and buildkite.com/docs (environment-variables). Kubernetes tells a
pod its index only; `JOB_COMPLETIONS` is what our manifest sets. GitHub Actions sets nothing."""


def shard_of(flag: str | None, of: int | None, environ: Mapping[str, str]) -> Shard | None:
    """The part to do; None is all of it.

    Args:
        flag: `--shard`, which wins over everything.
        of: `--of`, the number of jobs where only the job's own number is in the environment.

    Raises:
        ConfigError: not `I/N` with 1 <= I <= N, or variables that cannot be so.
        UsageError: several systems, or an index without a count.
    """
    if flag is not None:
        if of is not None:
            raise UsageError("--shard I/N has the N of --of already", hint="leave --of out")
        return _whole(_flag(flag))
    here = [source for source in SOURCES if environ.get(source.index)]
    found = [shard for source in here if (shard := _whole(_read(source, of, environ)))]
    if of is not None and not here:
        raise UsageError(
            f"--of {of} needs to know which of them this is",
            hint=f"write --shard I/{of}, or set one of {', '.join(s.index for s in SOURCES)}",
        )
    if len(found) > 1:
        raise UsageError(
            "this job is a part by more than one count: "
            + ", ".join(f"{shard} ({shard.origin})" for shard in found),
            hint="say which with --shard I/N; --shard 1/1 does everything",
        )
    return found[0] if found else None


def _whole(shard: Shard) -> Shard | None:
    return None if shard.count == 1 else shard


def _flag(text: str) -> Shard:
    index, slash, count = text.partition("/")
    if slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count):
        return Shard(int(index) - 1, int(count), "--shard")
    raise ConfigError(
        f"--shard is {text!r}",
        field="shard",
        value=text,
        legal="I/N with 1 <= I <= N",
        hint="the first of three is --shard 1/3",
    )


def _read(source: Source, of: int | None, environ: Mapping[str, str]) -> Shard:
    index = _number(source.index, environ)
    given = _number(source.count, environ) if environ.get(source.count) else None
    count = given if of is None else of
    if count is None:
        raise UsageError(
            f"{source.index}={index} says which job of a {source.system} this is, but not of how "
            "many",
            hint=f"add --of N or set {source.count}; --shard 1/1 does everything here",
        )
    if given not in (None, count):
        raise UsageError(f"--of {of}, but {source.count} is {given}", hint="leave --of out")
    first = source.first if isinstance(source.first, int) else _number(source.first, environ)
    step = _number(source.step, environ) if environ.get(source.step) else 1
    last = first + (count - 1) * step
    if environ.get(source.last) and _number(source.last, environ) != last:
        raise _impossible(source, environ, "numbers without a common distance")
    at, rest = divmod(index - first, step or 1)
    if rest or not 0 <= at < count:
        raise _impossible(source, environ, f"{index} is not one of {first} to {last}")
    return Shard(at, count, f"{source.index}={index}, {source.system}")


def _number(name: str, environ: Mapping[str, str]) -> int:
    text = environ.get(name, "")
    if text.isdecimal():
        return int(text)
    raise ConfigError(
        f"{name} is {text!r}",
        field=name,
        value=text,
        legal="a whole number",
        hint=f"correct or unset {name}, or say --shard I/N",
    )


def _impossible(source: Source, environ: Mapping[str, str], why: str) -> ConfigError:
    names = (source.index, str(source.first), source.last, source.count, source.step)
    told = [f"{name}={environ[name]}" for name in names if name in environ]
    return ConfigError(
        f"the {source.system}'s variables make no shard: {why} ({', '.join(told)})",
        field=source.index,
        value=environ[source.index],
        legal="consecutive jobs",
        hint="say --shard I/N",
    )
