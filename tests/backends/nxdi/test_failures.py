"""Recorded compiler output leads to the right code, kind and retry."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroncompile.backends.nxdi.failures import KINDS, bad_output, classify
from neuroncompile.backends.nxdi.places import kernel_files
from neuroncompile.hardware.codes import compiler_codes, log_lines, runtime_statuses
from tests.backends.nxdi import logs

OLD = {"neuronx-cc": "2.24.5133.0+58f8de22"}  # SDK 2.29, with data races
NEW = {"neuronx-cc": "2.26.6360.0+1a2b3c4d"}  # SDK 2.31, without
GIB = 1 << 30
PIECES = [*logs.HBM, *logs.POISONED, *logs.CRASH, logs.F137, logs.LEGALISE, logs.MISSING_KERNEL]


@pytest.mark.parametrize(
    ("lines", "code", "kind", "deterministic"),
    [
        (logs.HBM, "NCC_EOOM002", "config", True),
        (logs.wrapped(logs.OLD_HBM), "XCG815", "config", True),
        ([logs.INSTRUCTIONS], "NCC_EBVF030", "config", True),
        ([logs.OPERATOR], "NCC_EXTP003", "config", True),
        ([logs.LEGALISE], "NCC_INLA001", "compiler_bug", True),
        ([logs.KERNEL], "NCC_INKI016", "config", True),
        ([logs.MISSING_KERNEL], "NCC_EVRF059", "environment", False),
        (["[ERROR] [NCC_EVRF065] NKI kernel 'k' was traced"], "NCC_EVRF065", "environment", False),
        (["[ERROR] [NCC_EXYZ001] something of tomorrow"], "NCC_EXYZ001", "config", True),
        (["[INTERNAL_ERROR] [NCC_IXYZ901] tomorrow"], "NCC_IXYZ901", "compiler_bug", True),
        (["[ERROR] [NCC_PYP031] cannot lower this"], "NCC_PYP031", "config", True),
        (["[INTERNAL_ERROR] [NCC_PYP031] lowering"], "NCC_PYP031", "compiler_bug", True),
        (["NCC_PYP031] cut off at the front"], "NCC_PYP031", "compiler_bug", True),
        (["   [XCG815]  Estimated peak HBM usage"], "XCG815", "config", True),
        (logs.wrapped("[DVR002]  Internal failure"), "DVR002", "compiler_bug", True),
        (["NCC_EOOM002] Maximum peak HBM usage of 2.00GB"], "NCC_EOOM002", "config", True),
        (logs.wrapped(logs.F137), "F137", "host_memory", False),
        (logs.wrapped(logs.F134), "F134", "compiler_bug", False),
        (logs.wrapped(logs.F139), "F139", "compiler_bug", False),
        (logs.CRASH, "", "compiler_bug", False),
        (logs.BANNER, "", "compiler_bug", False),
        (["Backend exited with code -9", *logs.BANNER], "", "host_memory", False),
        (["generating HLO: context_encoding_model", "Killed"], "", "host_memory", False),
        (["terminate called after throwing 'std::bad_alloc'"], "", "host_memory", False),
        (["neuronx-cc failed with -9"], "", "host_memory", False),
        (logs.POISONED, "", "environment", False),
        (["x: error while loading shared libraries: libxml2.so.2"], "", "environment", False),
        (["OSError: [Errno 28] No space left on device"], "", "environment", False),
        (["Bad StatusOr access: [Errno 61] No data available"], "", "environment", False),
        (["Too many instructions after unroll for function sg0000"], "", "config", True),
        (["KeyboardInterrupt"], "", "interrupted", False),
        (["Subcommand returned with exitcode=70"], "", "unknown", False),
        (["nothing of interest"], "", "unknown", False),
        ([logs.MATCH_REPLACE, "neuronx-cc failed with 70"], "NCC_IXCG856", "compiler_bug", True),
        (logs.wrapped(logs.TENSORIZER), "NCC_ITEN404", "compiler_bug", True),
        (logs.wrapped(logs.LIBXML2), "", "environment", False),
        ([logs.ISLPY, "neuronx-cc compilation failed with 70"], "", "environment", False),
        (["Command '['neuronx-cc']' died with <Signals.SIGHUP: 1>."], "", "interrupted", False),
        (["Command '['neuronx-cc']' died with <Signals.SIGKILL: 9>."], "", "host_memory", False),
        ([], "", "unknown", False),
        (["nrt_load failed: status=4 message=Allocation"], "NRT_RESOURCE", "config", False),
        (["it says NRT_EXEC_NC_BUSY here"], "NRT_EXEC_NC_BUSY", "environment", False),
    ],
)
def test_what_a_log_means(lines: list[str], code: str, kind: str, deterministic: bool) -> None:
    found = classify(lines, exit_code=70, toolchain=NEW)
    assert (found.code, found.kind, found.deterministic) == (code, kind, deterministic)
    assert found.retries == (1 if found.cls == "cache_io" else 0)


@pytest.mark.parametrize("code", [c for c in compiler_codes() if c.startswith("NCC_")])
def test_every_code_in_the_compilers_own_line(code: str) -> None:
    row = compiler_codes()[code]
    prefix = "ERROR" if code[4] == "E" else "INTERNAL_ERROR"
    found = classify(logs.wrapped(f"[{prefix}] [{code}] cause - advice"), toolchain=NEW)
    assert (found.code, found.cls, found.meaning) == (code, row.cls, row.meaning)
    assert (found.submodel, found.index) == ("context_encoding_model", 2)
    kinds = {
        "internal_compiler_error": "compiler_bug",
        "kernel_artifact_missing": "environment",
        "nki_version": "environment",
    }
    wanted = {"NCC_INKI016": "config", "NCC_IINL902": "intermittent"}
    assert found.kind == wanted.get(code, kinds.get(row.cls, "config"))


@pytest.mark.parametrize("envelope", [logs.F137, logs.F134, logs.F139, logs.BANNER[1]])
def test_the_envelope_never_hides_the_cause(envelope: str) -> None:
    for lines in ([envelope, *logs.HBM], [*logs.HBM, envelope], [envelope, *logs.HBM, envelope]):
        assert classify(lines, exit_code=70, toolchain=OLD).code == "NCC_EOOM002"
        assert classify(lines, exit_code=-9, killed_for_memory=True).code == "NCC_EOOM002"


def test_the_exit_status_tells_nothing_but_a_signal() -> None:
    for status in (0, 1, 70, None):
        assert classify(["words"], exit_code=status).kind == "unknown"
        assert classify(logs.HBM, exit_code=status).kind == "config"
    for status in (-9, 137):
        assert classify(["words"], exit_code=status).kind == "host_memory"
        assert classify(logs.HBM, exit_code=status).kind == "config"
    for status in (-6, 134, -11, 139):
        assert classify(["words"], exit_code=status, toolchain=NEW).kind == "compiler_bug"
    for status in (-15, 143, -2, 130, -1):
        assert classify(["words"], exit_code=status).kind == "interrupted"


def test_the_kernels_own_count_tells_of_memory() -> None:
    assert classify(logs.CRASH, killed_for_memory=True).kind == "host_memory"
    assert classify(["words"], exit_code=1, killed_for_memory=True).kind == "host_memory"
    assert classify([logs.LEGALISE], killed_for_memory=True).kind == "compiler_bug"


@pytest.mark.parametrize(
    ("over", "kind"), [("memory", "host_memory"), ("time", "unknown"), ("silence", "unknown")]
)
def test_what_we_stopped_is_no_fault_of_the_graph(over: str, kind: str) -> None:
    found = classify([logs.F137, *logs.HBM], exit_code=-9, over=over)
    assert (found.kind, found.code, found.deterministic) == (kind, "", False)


def test_whatever_is_said_after_ctrl_c_is_no_reason() -> None:
    found = classify([*logs.HBM, logs.F137], exit_code=70, interrupted=True)
    assert (found.kind, found.code, found.deterministic) == ("interrupted", "", False)


@pytest.mark.parametrize("lines", [logs.CRASH, logs.BANNER, logs.wrapped(logs.F139)])
def test_an_unexplained_error_of_a_compiler_with_races_is_tried_once_more(lines: Any) -> None:
    found = classify(lines, exit_code=70, toolchain=OLD)
    assert (found.kind, found.retry, found.retries) == ("intermittent", "same", 1)
    assert not found.deterministic
    assert classify(lines, exit_code=70, toolchain=NEW).kind == "compiler_bug"
    assert classify(lines, exit_code=70).kind == "compiler_bug"  # version unknown


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("2.16.345.0", "intermittent"),
        ("2.25.3371.0+f524f36b", "intermittent"),  # SDK 2.30: only the first race repaired
        ("2.26.6360.0", "compiler_bug"),
        ("2.27.5334.0+f702b353", "compiler_bug"),
        ("3.0.1", "compiler_bug"),
        ("", "compiler_bug"),
    ],
)
def test_from_sdk_2_31_on_internal_errors_are_bugs(version: str, kind: str) -> None:
    line = "[INTERNAL_ERROR] [NCC_CFG901] control flow validation"
    assert classify([line], toolchain={"neuronx-cc": version}).kind == kind


def test_an_internal_error_with_a_cause_of_its_own_is_not_tried_again() -> None:
    assert classify([logs.LEGALISE], toolchain=OLD).kind == "compiler_bug"
    line = "[INTERNAL_ERROR] [NCC_CFG015] stack overflow"
    assert classify([line], toolchain=OLD).retries == 0


@pytest.mark.parametrize("versions", [OLD, NEW, {}])
def test_one_code_is_intermittent_on_every_release(versions: dict[str, str]) -> None:
    found = classify(["[INTERNAL_ERROR] [NCC_IINL902] pass INL"], toolchain=versions)
    assert (found.kind, found.retries, found.deterministic) == ("intermittent", 2, False)


def test_a_warning_is_no_failure() -> None:
    lines = [
        "[WARNING] [NCC_EVRF035] dot is downcast",
        "2026-05-25 22:16:44: 4071 WARNING [NCC_EVRF061] all-reduce is downcast",
        logs.LEGALISE,
    ]
    assert classify(lines, toolchain=NEW).code == "NCC_INLA001"
    assert classify(lines[:2], toolchain=NEW).code == ""


@pytest.mark.parametrize(
    "line",
    [
        "[SHA256] 9f86d081",
        "INFO [GRAPH123] done",
        "INFO: [ABC123] done",
        "tensor[ABC123]",
        "see NCC_EOOM002 in the docs",
    ],
)
def test_what_only_looks_like_a_code(line: str) -> None:
    assert classify([line]).code == ""


def test_figures_of_device_memory() -> None:
    found = classify(logs.HBM)
    assert found.figures == {
        "peak_hbm": round(28.44 * GIB),
        "hbm_limit": 24 * GIB,
        "constants_hbm": 3 << 19,
        "io_hbm": 43 * GIB,
        "internal_hbm": round(6.89 * GIB),
        "dma_ring_io_hbm": 0,
        "dma_ring_spills_hbm": 12 << 10,
    }
    assert found.reason.endswith("(28.4 GiB of 24.0 GiB) [NCC_EOOM002]")
    old = classify(logs.wrapped(logs.OLD_HBM))
    assert old.figures == {"peak_hbm": round(22.839451 * GIB), "hbm_limit": 16 * GIB}


def test_figures_of_instructions() -> None:
    found = classify([logs.INSTRUCTIONS])
    assert found.figures == {"instructions": 37_536_776, "instruction_limit": 5_000_000}
    assert "37,536,776 instructions of 5,000,000" in found.reason
    assert classify([logs.OPERATOR]).figures["instruction_limit"] == 300_000
    assert classify([logs.F137, logs.INSTRUCTIONS.replace("[NCC_EBVF030]", "")]).figures == {}


def test_figures_of_host_memory() -> None:
    said = "Current memory usage for neuronxcc is {} Kilobytes."
    found = classify([said.format(37748736), *logs.wrapped(logs.F137), said.format(1578528)])
    assert found.figures == {"compiler_memory": 36 * GIB}
    assert found.reason.endswith("(the compiler held 36.0 GiB) [F137]")
    assert classify([said.format(1578528), *logs.HBM]).figures["peak_hbm"] == round(28.44 * GIB)


def test_a_remembered_failure_of_the_vendors_cache() -> None:
    found = classify(logs.POISONED, toolchain=OLD)
    assert found.cls == "cache_poisoned"
    assert found.entries == (
        "/c/neuronxcc-2.24.5133.0+58f8de22/MODULE_12486829708343293975+d41d8cd9",
    )
    assert "NCC_INLA001" in found.meaning
    assert "--retry_failed_compilation" in found.remedy


def test_a_fresh_failure_beside_a_remembered_one() -> None:
    later = [*logs.POISONED[:1], *logs.wrapped(logs.OLD_HBM)]
    assert classify(later).code == "XCG815"
    assert classify([*logs.HBM, *logs.POISONED]).code == "NCC_EOOM002"
    assert classify([*logs.HBM, *logs.POISONED]).entries == ()


def test_the_host_at_fault_behind_an_internal_error() -> None:
    full = "OSError: [Errno 28] No space left on device"
    loader = "hlo-opt: error while loading shared libraries: libxml2.so.2: cannot open shared"
    for line, cls in ((full, "disk_full"), (loader, "toolchain_missing")):
        assert classify([logs.LEGALISE, line], toolchain=NEW).cls == cls
        assert classify([logs.F134, line], toolchain=NEW).cls == cls
        assert classify([*logs.HBM, line]).code == "NCC_EOOM002"
    probing = "libefa.so.1: cannot open shared object file: No such file or directory"
    assert classify([probing, logs.LEGALISE], toolchain=NEW).code == "NCC_INLA001"
    assert classify([probing]).cls == "toolchain_missing"


def test_where_it_failed() -> None:
    given = {"submodel": "token_generation_model", "index": 1, "batch": 4, "bucket": 512}
    found = classify(logs.wrapped(logs.F137), graph=given, target="trn2", toolchain=OLD)
    assert (found.submodel, found.index, found.batch, found.bucket) == tuple(given.values())
    assert found.graph == "token_generation_model b4 512"
    assert (found.target, found.versions) == ("trn2", OLD)
    nxd = classify(["Compilation failed for token_generation_model bucket 3: x", *logs.HBM])
    assert nxd.graph == "token_generation_model bucket no. 3"
    place = "/w/vision_model/vision_encoder/_tp0_bk0/log-neuron-cc.txt"
    vision = classify([place, logs.LEGALISE])
    assert (vision.program, vision.submodel, vision.index) == ("vision_model", "vision_encoder", 0)
    assert classify(logs.HBM).graph == ""


def test_of_several_graphs_the_one_of_the_deciding_line() -> None:
    lines = [
        *logs.wrapped("[F134] x", submodel="context_encoding_model", index=0),
        *logs.wrapped(logs.OLD_HBM, submodel="token_generation_model", index=5),
    ]
    found = classify(lines)
    assert (found.code, found.submodel, found.index) == ("XCG815", "token_generation_model", 5)


def test_kernels_that_the_log_names() -> None:
    path = "/home/user/project/71adab98b5b4ec7f/my_kernel_artifact"
    assert classify([logs.MISSING_KERNEL]).kernels == (path,)
    other = "reads /t/0123456789abcdef/attention.klir and /t/0123456789abcdef/attention.klir"
    assert classify([other]).kernels == ("/t/0123456789abcdef/attention.klir",)
    binary = "/x\0\x12\x30/t/0123456789abcdef/attention\x1a"
    assert kernel_files([binary]) == ("/t/0123456789abcdef/attention",)


def test_colours_and_odd_bytes_do_no_harm() -> None:
    line = "\x1b[31m[INTERNAL_ERROR]\x1b[0m \x1b[1m[NCC_INLA001]\x1b[0m \ufffd cause"
    found = classify([line], toolchain=NEW)
    assert found.code == "NCC_INLA001"
    assert "\x1b" not in found.line


def test_a_whole_log_in_one_piece() -> None:
    lines = ["before", *logs.wrapped("[F134] x"), *logs.HBM, "", "after"]
    assert classify(["\n".join(lines)]) == classify(lines)
    assert classify(["\n".join(lines)]).line == logs.HBM[0]


def test_success_without_its_output() -> None:
    found = bad_output("graph.neff is missing", graph={"submodel": "m", "index": 0}, target="trn2")
    assert (found.kind, found.retries, found.deterministic) == ("unknown", 1, False)
    assert found.meaning == "the compiler reports success, but graph.neff is missing"
    assert (found.graph, found.target) == ("m bucket no. 0", "trn2")


def test_one_fault_or_two() -> None:
    first, again = classify(logs.HBM), classify([*logs.HBM, "more"])
    assert first.same_as(again)
    assert not first.same_as(classify([logs.INSTRUCTIONS]))
    assert classify(["Killed"]).same_as(classify(["MemoryError"]))
    assert not classify(["Killed"]).same_as(classify(logs.wrapped(logs.F137)))


@given(st.lists(st.one_of(st.text(max_size=60), st.sampled_from(PIECES)), max_size=8))
def test_whatever_is_printed_there_is_an_answer(lines: list[str]) -> None:
    found = classify(lines, exit_code=70, toolchain=OLD)
    assert found.kind in KINDS
    assert found.meaning
    assert found.deterministic <= (found.kind in ("config", "compiler_bug"))
    assert found == classify([*lines, "", "  "], exit_code=70, toolchain=OLD)


def test_every_class_of_the_table_has_a_kind() -> None:
    known = {cls for classes in KINDS.values() for cls in classes.split()}
    rows = [*compiler_codes().values(), *runtime_statuses(), *log_lines()]
    assert {row.cls for row in rows} - known == {"ok", "info", "cache_hit"}
