"""The files for CI systems and clusters: they parse, and every command in them runs."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT, Run
from tests.pipeline.test_prewarm import write_recipe

CI = ROOT / "recipes" / "ci"
FILES = sorted(path for path in CI.iterdir())
NAMES = ["aws-batch.yml", "github-actions.yml", "kubernetes-job.yml", "kubernetes-pod.yml"]


@dataclass
class Job:
    """One job as its system would start it."""

    file: str
    words: list[str]
    env: dict[str, str] = field(default_factory=dict)


def documents(name: str) -> list[dict[str, Any]]:
    return [dict(found) for found in yaml.safe_load_all((CI / name).read_text())]


def github() -> Iterator[Job]:
    [workflow] = documents("github-actions.yml")
    for job in workflow["jobs"].values():
        shards = job.get("strategy", {}).get("matrix", {}).get("shard", [1])
        for step in job["steps"]:
            if step.get("run", "").startswith("neuroncompile"):
                for shard in shards:
                    context = {
                        "matrix.shard": str(shard),
                        "strategy.job-total": str(len(shards)),
                        "vars.TIER": "s3://BUCKET/PREFIX",
                    }
                    text = re.sub(
                        r"\$\{\{ ([\w.-]+) \}\}", lambda m, c=context: c[m[1]], step["run"]
                    )
                    yield Job("github-actions.yml", shlex.split(text))


def batch() -> Iterator[Job]:
    [definition] = documents("aws-batch.yml")
    words = [
        definition["parameters"][word.removeprefix("Ref::")] if word.startswith("Ref::") else word
        for word in definition["containerProperties"]["command"]
    ]
    for index in range(4):  # --array-properties size=4
        env = {"AWS_BATCH_JOB_ARRAY_INDEX": str(index), "AWS_BATCH_JOB_ARRAY_SIZE": "4"}
        yield Job("aws-batch.yml", words, env)


def kubernetes() -> Iterator[Job]:
    [job] = documents("kubernetes-job.yml")
    [container] = job["spec"]["template"]["spec"]["containers"]
    for index in range(job["spec"]["completions"]):
        env = {"JOB_COMPLETION_INDEX": str(index)}
        yield Job("kubernetes-job.yml", container["command"] + container["args"], env)
    [pod] = documents("kubernetes-pod.yml")
    for container in pod["spec"]["initContainers"] + pod["spec"]["containers"]:
        yield Job("kubernetes-pod.yml", container["command"] + container["args"])


JOBS = [*github(), *batch(), *kubernetes()]


def test_they_are_all_here_and_explained() -> None:
    assert [path.name for path in FILES] == NAMES
    assert {job.file for job in JOBS} == set(NAMES)
    for path in FILES:
        text = path.read_text()
        assert text.startswith("# ")
        assert max(map(len, text.splitlines())) <= 100


def test_no_command_is_left_out() -> None:
    """What the files say, by their text, is what `JOBS` runs: one command of several jobs once."""
    written = sum(
        len(re.findall(r"\bprewarm\W+recipes\b", str(document)))
        for path in FILES
        for document in documents(path.name)
    )
    assert written == len({(job.file, job.words[-1]) for job in JOBS}) == 6


def test_aws_takes_the_job_definition() -> None:
    """By the API's own description, as `aws batch register-job-definition` checks it."""
    from botocore.loaders import Loader
    from botocore.model import ServiceModel
    from botocore.validate import ParamValidator

    service = ServiceModel(Loader().load_service_model("batch", "service-2"))
    shape = service.operation_model("RegisterJobDefinition").input_shape
    [definition] = documents("aws-batch.yml")
    assert ParamValidator().validate(definition, shape).generate_report() == ""
    definition["containerProperties"]["cpu"] = 8
    assert "cpu" in ParamValidator().validate(definition, shape).generate_report()


def test_kubernetes_says_its_count_twice_alike() -> None:
    [job] = documents("kubernetes-job.yml")
    [container] = job["spec"]["template"]["spec"]["containers"]
    of = container["args"][container["args"].index("--of") + 1]
    assert int(of) == job["spec"]["completions"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {"/recipes", "/scratch", "/tmp"}
    volumes = {volume["name"] for volume in job["spec"]["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_every_command_runs(
    run: Run, llama: Path, store_root: Path, built_key: str, tmp_path: Path
) -> None:
    """In the order of the files, as their systems would, for a recipe that is compiled already:
    so each shard finds or pushes its part, and the checks after them find everything."""
    recipes = tmp_path / "recipes"
    more = '[matrix]\n"config.torch_dtype" = ["float32"]\n'
    for name in "abcdef":
        write_recipe(recipes / f"{name}.toml", llama, more if name == "a" else "")
    pod = tmp_path / "scratch"
    found: dict[str, list[str]] = {}
    for job in JOBS:
        places = {
            "recipes": str(recipes),
            "/recipes": str(recipes),
            "s3://BUCKET/PREFIX": f"file://{tmp_path}/tier",
            "prewarm.jsonl": str(tmp_path / "prewarm.jsonl"),
            "prewarm.xml": str(tmp_path / "prewarm.xml"),
        }
        program, command, *words = [places.get(word, word) for word in job.words]
        assert (program, command) == ("neuroncompile", "prewarm")
        store = pod if job.file == "kubernetes-pod.yml" else store_root
        done = run("prewarm", *words, "--store", str(store), "--json", **job.env)
        assert done.code == 0, (job, done.err)
        programs = done.document["result"]["programs"]
        assert len(programs) == 6
        sharded = [row["name"] for row in programs if row["status"] != "skipped"]
        if done.document["result"]["shard"]:
            found.setdefault(job.file, []).extend(sharded)
        else:
            assert len(sharded) == 6
        assert {row["key"] for row in programs if row["key"]} <= {built_key}
    for file in ("github-actions.yml", "aws-batch.yml", "kubernetes-job.yml"):
        assert sorted(set(found[file])) == sorted(found[file])
        assert len(found[file]) == 6
    assert (pod / "v1" / "actions" / "compile" / built_key).is_file(), "the init container pulled"
    lines = (tmp_path / "prewarm.jsonl").read_text().splitlines()
    assert len(lines) == 4 * 6
    assert {json.loads(line)["status"] for line in lines} == {"warm", "skipped"}


@pytest.mark.parametrize("name", NAMES)
def test_they_are_no_recipes(name: str, run: Run) -> None:
    stem = name.removesuffix(".yml")
    listed = run("recipes", "ls", "--json").document["result"]
    assert stem not in [recipe["name"] for recipe in listed]
