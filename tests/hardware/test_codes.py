"""Every documented code with its class, meaning, remedy and retry."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from neuroncompile.hardware.codes import (
    RETRIES,
    compiler_code,
    compiler_codes,
    log_lines,
    runtime_status,
    runtime_statuses,
)
from tests.hardware.documented_codes import CODES, STATUSES

ROWS = [(number, *rest) for number, *rest in map(str.split, STATUSES.strip().splitlines())]


@pytest.mark.parametrize("code", CODES)
def test_a_code_of_the_compiler(code: str) -> None:
    cls, retry, *words = CODES[code].split("|")[0].split()
    row = compiler_code(code)
    assert (row.code, row.cls, row.retry, row.listed) == (code, cls, retry, True)
    for word in words:
        assert word in row.meaning
    for word in CODES[code].split("|")[1].split():
        assert word in row.remedy


def test_the_table_has_these_and_no_others() -> None:
    assert set(compiler_codes()) == set(CODES)
    assert len(CODES) == 93 + 3


def test_every_row_can_be_read() -> None:
    rows = [*compiler_codes().values(), *runtime_statuses(), *log_lines()]
    assert {row.retry for row in rows} == set(RETRIES)
    for row in rows:
        assert row.meaning
        assert row.meaning[0] != " "
        assert not row.meaning.endswith((".", " "))
        assert row.remedy or row.cls in ("ok", "info", "cache_hit")
        assert set(getattr(row, "fallbacks", ())) <= {"-O1", "-O2", "-O3", "bucket", "batch"}


@pytest.mark.parametrize(("number", "name", "cls"), ROWS)
def test_a_status_of_the_runtime(number: str, name: str, cls: str) -> None:
    row = runtime_status(int(number))
    assert row is not None
    assert (row.name, row.cls) == (name, cls)
    assert runtime_status(name) == row


def test_the_runtime_has_these_statuses_and_no_others() -> None:
    assert [row.number for row in runtime_statuses()] == [int(number) for number, *_ in ROWS]
    assert runtime_status(8) is None
    assert runtime_status("NRT_NO_SUCH") is None


def test_what_helps_with_a_status() -> None:
    overflow = runtime_status("NRT_EXEC_SW_NQ_OVERFLOW")
    assert overflow is not None
    assert overflow.remedy == "NEURON_RT_ENABLE_DGE_NOTIFICATIONS=0"
    version = runtime_status(10)
    assert version is not None
    assert "newer" in version.meaning


@pytest.mark.parametrize(
    ("code", "known"),
    [
        ("NLA001", "NCC_INLA001"),  # before codes told internal from external
        ("CFG015", "NCC_CFG015"),
        ("EOOM002", "NCC_EOOM002"),
        ("NCC_XCG815", "XCG815"),
    ],
)
def test_older_spellings(code: str, known: str) -> None:
    assert compiler_code(code).code == known


def test_of_an_unknown_code_its_letters_tell() -> None:
    refused, broken, bare = map(compiler_code, ("NCC_EXYZ123", "NCC_IXYZ902", "DVR002"))
    assert (refused.cls, refused.retry, refused.listed) == ("rejected", "changed", False)
    assert (broken.cls, broken.retry) == ("internal_compiler_error", "once_changed")
    assert (bare.code, bare.cls) == ("DVR002", "internal_compiler_error")


def test_what_the_compiler_calls_an_unknown_code_says_more_than_its_letters() -> None:
    assert compiler_code("NCC_PYP001").cls == "internal_compiler_error"
    assert compiler_code("NCC_PYP001", internal=False).cls == "rejected"
    assert compiler_code("NCC_EXYZ123", internal=True).cls == "internal_compiler_error"
    assert compiler_code("NCC_EOOM001", internal=True).cls == "oom_device"


@pytest.mark.parametrize(
    ("line", "cls"),
    [
        ("INFO ||NCC_WRAPPER||: Got a cached failed neff at /x/model.neff.", "cache_poisoned"),
        ("INFO ||NEURON_CACHE||: Using a cached neff at /x/model.neff", "cache_hit"),
        ("Compiler status PASS", "ok"),
        ("ERROR ||NEURON_CC_WRAPPER||: Failed compilation with ['neuronx-cc']:", "compile_failed"),
        ("Backend exited with code -9", "oom_host"),
        ("Subcommand returned with exitcode=70", "compile_failed"),
        ("Subcommand returned with exitcode=-11", "compiler_crash"),
        ("Killed", "oom_host"),
        ("/bin/sh: line 1:  4242 Killed   python export.py", "oom_host"),
        ("x: error while loading shared libraries: libxml2.so.2: cannot", "toolchain_missing"),
        ("Too many instructions after unroll for function sg0000", "instruction_limit"),
        ("Estimated peak HBM usage (22.839451) exceeds 16GB.", "oom_device"),
        ("Maximum peak HBM usage of 18.12GB exceeds HBM limit of 16.00GB", "oom_device"),
        ("Failed to allocate 512MB (usage: tensors) on ND 0:NC 1", "oom_device"),
        ("[ND 0] 2 NeuronCore(s) not available - Requested:4", "busy"),
        ("Logical Neuron Core(s) not available - Requested:4 Available:0", "busy"),
        ("Unable to determine Neuron Driver version. Please check", "driver_missing"),
        ("This runtime requires Neuron Driver version 2.5 or greater", "driver_old"),
        ("driver (compatibility id: 3) is not compatible with runtime", "driver_old"),
        ("NEFF version mismatch supported: 1.1 received: 2.0", "neff_version"),
        ("NEFF was compiled by a newer version of Neuron compiler", "neff_version"),
        ("Unsupported hardware operator code 214 found in neff", "neff_version"),
        ("Could not find VNC id 4", "placement"),
        ("Could not open the nd4", "placement"),
        ("Bad StatusOr access: UNKNOWN: [Errno 61] No data available", "cache_io"),
        ("failed to run scatter/gather, due to out-of-bound access.", "model_oob"),
        ("error_subtype: INFER_ERROR_SUBTYPE_NUMERICAL", "numerical"),
        ("torch._dynamo hit config.recompile_limit (8)", "graph_break"),
        ("2024-05-10 1:2:3.0: 77 INFO ||NEURON_CC_WRAPPER||: Call compiler", "info"),
        ("OSError: [Errno 28] No space left on device: '/tmp/x'", "disk_full"),
        ("E   is_subset(): incompatible function arguments.", "toolchain_mixed"),
        ("Command 'x' died with <Signals.SIGKILL: 9>.", "oom_host"),
        ("Command 'x' died with <Signals.SIGSEGV: 11>.", "compiler_crash"),
        ("Command 'x' died with <Signals.SIGHUP: 1>.", "interrupted"),
        ("cp: error writing 'x': Disk quota exceeded", "disk_full"),
        ("sh: 1: neuronx-cc: not found", "toolchain_missing"),
        ("RuntimeError: Could not find hlo-opt in ['/usr/bin']", "toolchain_missing"),
    ],
)
def test_lines_that_tell(line: str, cls: str) -> None:
    assert next(sign.cls for sign in log_lines() if sign.pattern.search(line)) == cls


@pytest.mark.parametrize(
    "line",
    [
        "Processes may be terminated if they encountered an internal error",
        "Killed: 0 tasks",
        "wrote graph.neff in 4.1 s",
    ],
)
def test_lines_that_tell_nothing(line: str) -> None:
    assert not [sign.cls for sign in log_lines() if sign.pattern.search(line)]


def test_a_remedy_names_the_release_that_repairs() -> None:
    for row in compiler_codes().values():
        if row.fixed:
            assert re.search(rf"\b{re.escape(row.fixed)}\b", row.remedy)


def test_the_table_is_read_only_when_asked() -> None:
    program = (
        "import sys, neuroncompile.hardware.codes as codes;"
        "assert codes._table.cache_info().currsize == 0;"
        "codes.compiler_code('F137');"
        "assert codes._table.cache_info().currsize == 1"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
