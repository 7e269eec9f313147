"""`targets ls|show`: the vendor's figures, by chip and instance."""

from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.hardware.targets import CHIPS, CPU_LEVELS, INSTANCES
from tests.conftest import Run

GIB = 1 << 30


def test_every_target_is_listed(run: Run) -> None:
    done = run("targets", "ls", "--json")
    names = [row["target"] for row in done.document["result"]]
    assert names == [*(f"cpu:{level}" for level in CPU_LEVELS), *CHIPS, *INSTANCES]
    text = run("targets", "ls").out
    assert all(name in text for name in names)
    assert max(map(len, text.splitlines())) <= 80
    assert sum("here, the default" in line for line in text.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "devices", "cores", "memory", "each", "sdk"),
    [
        ("inf2.xlarge", 1, {1: 2}, 32, {1: 16}, ("2.21", "2.28")),
        ("inf2.48xlarge", 12, {1: 24}, 384, {1: 16}, ("2.21", "2.28")),
        ("trn1.32xlarge", 16, {1: 32}, 512, {1: 16}, ("2.21", "2.28")),
        ("trn2.3xlarge", 1, {2: 4, 1: 8}, 96, {2: 24, 1: 12}, ("2.21", "2.31")),
        ("trn2.48xlarge", 16, {2: 64, 1: 128}, 1536, {2: 24, 1: 12}, ("2.21", "2.31")),
        ("trn3-gen2", 4, {2: 16, 1: 32}, 576, {2: 36, 1: 18}, (None, "2.31")),
    ],
)
def test_show_gives_the_vendors_figures(
    run: Run,
    name: str,
    devices: int,
    cores: dict[int, int],
    memory: int,
    each: dict[int, int],
    sdk: tuple[str | None, str],
) -> None:
    shown = run("targets", "show", name, "--json").document["result"]
    assert (shown["devices"], shown["memory"]) == (devices, memory * GIB)
    assert {row["lnc"]: row["logical_cores"] for row in shown["lnc"]} == cores
    assert {row["lnc"]: row["memory_per_core"] // GIB for row in shown["lnc"]} == each
    assert sdk[0] in (None, shown["sdk"]["first"])
    assert shown["sdk"]["last"] == sdk[1]
    for row in shown["lnc"]:
        assert row["tp_degrees"][-1] <= row["logical_cores"]
        # at any LNC the shares of all cores are the whole memory
        assert row["memory_per_core"] * row["logical_cores"] == shown["memory"]
    text = run("targets", "show", name).out
    assert f"{memory} GiB" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_first_sdk_of_trn3_is_the_windows(run: Run) -> None:
    """`build` refuses the release before the first one that is shown."""
    first = run("targets", "show", "trn3", "--json").document["result"]["sdk"]["first"]
    minor = int(first.partition(".")[2])
    assert 21 < minor < 31
    common = ("build", "llama-3.3-70b-trn2", "--target=trn3-gen1", "--dry-run", "--offline")
    assert run(*common, f"--toolchain=sdk-2.{minor}").code == 0
    refused = run(*common, f"--toolchain=sdk-2.{minor - 1}")
    assert refused.code == 5
    assert "trn3" in refused.err


def test_dtypes_follow_the_core(run: Run) -> None:
    def dtypes(name: str) -> list[Any]:
        found: list[Any] = run("targets", "show", name, "--json").document["result"]["dtypes"]
        return found

    assert "fp8 e4m3fn" not in dtypes("trn2")
    assert {"fp8 e4m3fn", "mxfp8", "mxfp4"} < set(dtypes("trn3"))
    assert not [d for d in dtypes("inf2") if d.startswith("int64")]


def test_a_chip_names_its_instances_and_a_level_its_features(run: Run) -> None:
    chip = run("targets", "show", "inf2", "--json").document["result"]
    assert chip["instances"] == ["inf2.xlarge", "inf2.8xlarge", "inf2.24xlarge", "inf2.48xlarge"]
    assert chip["devices"] is None
    level = run("targets", "show", "cpu:x86-64-v3", "--json").document["result"]
    assert {"ssse3", "avx2", "fma"} < set(level["features"])
    assert "avx512f" not in level["features"]


def test_a_misspelt_target_is_exit_5_with_the_nearest(run: Run) -> None:
    done = run("targets", "show", "trn2.48xlrge")
    assert done.code == 5
    assert "did you mean trn2.48xlarge?" in done.err
