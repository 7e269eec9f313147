from __future__ import annotations

import os
from pathlib import Path

import pytest

from neuroncompile.errors import ConfigError
from neuroncompile.hardware.targets import (
    CHIPS,
    CPU_LEVELS,
    INSTANCES,
    host_isa,
    legal_tp_degrees,
    parse_target,
)

V2 = "fpu cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"
V3 = f"{V2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"
GRAVITON2 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop "
    "asimddp ssbs"
)
GRAVITON4 = f"{GRAVITON2} uscat ilrcpc flagm dit sb sve sve2 frint flagm2 i8mm bf16"


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("cpu:x86-64-v2", {"platform": "cpu", "arch": "x86_64", "isa": "x86-64-v2"}),
        ("cpu:x86-64-v4", {"platform": "cpu", "arch": "x86_64", "isa": "x86-64-v4"}),
        ("cpu:armv8.2-a", {"platform": "cpu", "arch": "aarch64", "isa": "armv8.2-a"}),
        ("trn1", {"platform": "trn1", "lnc": 1}),
        ("trn1n", {"platform": "trn1n", "lnc": 1}),
        ("inf2", {"platform": "inf2", "lnc": 1}),
        ("trn2", {"platform": "trn2", "lnc": 2}),
        ("trn3", {"platform": "trn3", "lnc": 2}),
        ("trn2.48xlarge", {"platform": "trn2", "lnc": 2}),
        ("inf2.xlarge", {"platform": "inf2", "lnc": 1}),
    ],
)
def test_spec_is_the_compilers_view(text: str, spec: dict[str, object]) -> None:
    target = parse_target(text)
    assert target.spec() == spec
    assert parse_target(target.text) == target


def test_the_instance_is_kept_but_not_in_the_spec() -> None:
    named, bare = parse_target("trn2.3xlarge"), parse_target("trn2")
    assert named.instance == "trn2.3xlarge"
    assert named.spec() == bare.spec()


def test_cpu_without_a_level_is_this_hosts_best() -> None:
    target = parse_target("cpu")
    assert target.isa == host_isa()
    assert target.arch == {"arm64": "aarch64"}.get(os.uname().machine, os.uname().machine)


def test_lnc_and_isa_may_come_apart_from_the_text() -> None:
    assert parse_target("trn2", lnc=1).spec() == {"platform": "trn2", "lnc": 1}
    assert parse_target("cpu", isa="x86-64-v3").isa == "x86-64-v3"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("trn2.48xlrge", "trn2.48xlarge"),
        ("tnr2", "trn2"),
        ("cpu:x86-64-v33", "cpu:x86-64-v3"),
        ("cpu:native", "x86-64-v2"),
        ("gpu", "cpu"),
        ("trn2:x86-64-v3", "cpu:x86-64-v3"),
        ("", "targets ls"),
    ],
)
def test_unknown_targets_name_the_nearest(text: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_target(text)
    assert caught.value.exit_code == 5
    assert caught.value.value in (text, text.partition(":")[2])
    assert caught.value.legal
    assert hint in str(caught.value.hint)


def test_a_cpu_level_for_a_chip_is_refused() -> None:
    with pytest.raises(ConfigError, match="no CPU level") as caught:
        parse_target("trn2", isa="x86-64-v3")
    assert caught.value.field == "target.isa"


@pytest.mark.parametrize(("text", "lnc"), [("trn1", 2), ("inf2", 2), ("trn2", 4), ("cpu", 1)])
def test_an_lnc_the_chip_lacks_is_refused(text: str, lnc: int) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_target(text, lnc=lnc)
    assert caught.value.field == "logical_nc_config"
    assert caught.value.value == lnc
    assert caught.value.legal == sorted(CHIPS[text].lnc if text in CHIPS else [])


@pytest.mark.parametrize(
    ("arch", "flags", "level"),
    [
        ("x86_64", V2, "x86-64-v2"),
        ("x86_64", V3, "x86-64-v3"),
        ("x86_64", V4, "x86-64-v4"),
        ("x86_64", V3.replace(" fma", ""), "x86-64-v2"),
        ("x86_64", V4.replace(" movbe", ""), "x86-64-v2"),  # a level needs those below it
        ("aarch64", "fp asimd", "armv8-a"),
        ("aarch64", GRAVITON2, "armv8.2-a"),
        ("aarch64", GRAVITON4, "armv9-a"),
    ],
)
def test_host_isa_is_the_best_complete_level(arch: str, flags: str, level: str) -> None:
    name = "flags" if arch == "x86_64" else "Features"
    lines = ["processor\t: 0\n", f"{name}\t\t: {flags}\n", "processor\t: 1\n", f"{name}: none\n"]
    assert host_isa(lines, arch) == level


def test_a_host_below_every_level_is_refused() -> None:
    with pytest.raises(ConfigError, match="runs no level"):
        host_isa(["flags : fpu sse2\n"], "x86_64")


def test_this_hosts_level_is_one_its_compiler_knows() -> None:
    if not Path("/proc/cpuinfo").exists():
        pytest.skip("no /proc/cpuinfo")
    assert host_isa() in CPU_LEVELS


@pytest.mark.parametrize(
    ("text", "lnc", "degrees"),
    [
        ("cpu:x86-64-v3", None, None),
        ("inf2", None, (1, 2, 4, 8, 24)),
        ("inf2.xlarge", None, (1, 2)),
        ("inf2.24xlarge", None, (1, 2, 4, 8)),
        ("inf2.48xlarge", None, (1, 2, 4, 8, 24)),
        ("trn1", None, (1, 2, 8, 16, 32)),
        ("trn1.2xlarge", None, (1, 2)),
        ("trn1n.32xlarge", None, (1, 2, 8, 16, 32)),
        ("trn2", None, (1, 2, 4, 8, 16, 32, 64)),
        ("trn2.3xlarge", None, (1, 2, 4)),
        ("trn2.3xlarge", 1, (1, 2, 4, 8)),
        ("trn2.48xlarge", 1, (1, 2, 4, 8, 16, 32, 64, 128)),
    ],
)
def test_tp_degrees(text: str, lnc: int | None, degrees: tuple[int, ...] | None) -> None:
    assert legal_tp_degrees(parse_target(text, lnc=lnc)) == degrees


@pytest.mark.parametrize(
    ("name", "cores"),
    [("inf2.48xlarge", 24), ("trn1.32xlarge", 32), ("trn2.3xlarge", 4), ("trn2.48xlarge", 64)],
)
def test_logical_cores(name: str, cores: int) -> None:
    instance = INSTANCES[name]
    assert instance.logical_cores(CHIPS[instance.platform].lnc[0]) == cores
