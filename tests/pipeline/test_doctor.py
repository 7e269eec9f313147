"""The doctor on this machine and on broken ones; it never fails to answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import RunError
from neuroncompile.hardware.neuron_ls import parse_devices
from neuroncompile.hardware.targets import parse_target
from neuroncompile.pipeline import doctor_neuron
from neuroncompile.pipeline.device import check_device, check_lnc, check_runtime
from neuroncompile.pipeline.doctor import _looked
from neuroncompile.pipeline.finding import Finding, Patient
from neuroncompile.settings import load_settings
from tests.conftest import Done, Run
from tests.hardware.test_neuron_ls import HELD, trn2
from tests.standins.toolchain import StandIn


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return StandIn(tmp_path_factory.mktemp("sdk") / "venv")


def findings(done: Done, subject: str) -> list[dict[str, Any]]:
    return [f for f in done.document["result"]["findings"] if f["subject"] == subject]


def test_this_machine_compiles_and_runs_for_cpu(run: Run) -> None:
    done = run("doctor", "--json")
    assert done.code == 0, done.out
    result = done.document["result"]
    assert (result["can_compile"], result["can_run"]) == (True, True)
    assert findings(done, "toolchain")[0]["what"].startswith("torch 2.13.0")
    text = run("doctor").out
    assert "compile for cpu" in text
    assert "PROBLEM" not in text


def test_host_without_a_device_compiles_and_does_not_run(run: Run, toolchain: StandIn) -> None:
    args = ("doctor", "--target=trn2", f"--toolchain={toolchain.file}", "--json")
    done = run(*args)
    assert done.code == 10
    result = done.document["result"]
    assert (result["can_compile"], result["can_run"]) == (True, False)
    assert "no Neuron device" in findings(done, "devices")[0]["what"]
    assert run(*args, "--for=build").code == 0


def test_host_without_an_sdk(run: Run) -> None:
    done = run("doctor", "--target=trn2", "--toolchain=sdk-2.29", "--for=build", "--json")
    assert done.code == 10
    problems = [f for f in findings(done, "toolchain") if f["level"] == "problem"]
    assert "NEURONCOMPILE_NEURON_PYTHON" in problems[0]["fix"]


def test_older_chip_on_a_newer_sdk(run: Run, toolchain: StandIn) -> None:
    done = run("doctor", "--target=trn1", f"--toolchain={toolchain.file}", "--json")
    assert done.code == 10
    assert findings(done, "toolchain")[0]["fix"] == "--toolchain sdk-2.28"


def test_interpreter_with_other_versions(run: Run, toolchain: StandIn, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(toolchain.file.read_text().replace("4.57.6", "4.56.2"))
    done = run("doctor", "--target=trn2", f"--toolchain={other}", "--for=build", "--json")
    assert done.code == 10
    (finding,) = findings(done, "toolchain, interpreter")
    assert "transformers 4.56.2 asked, 4.57.6 here" in finding["what"]


@pytest.mark.parametrize(
    ("env", "what", "fix"),
    [
        ({"NEURONCOMPILE_STOER": "x"}, "NEURONCOMPILE_STOER", ""),
        ({"VLLM_NEURON_REMOTE_CACHE": "x"}, "VLLM_NEURON_REMOTE_CACHE is set", "unset VLLM"),
        ({"TRANSFORMERS_CACHE": "x"}, "TRANSFORMERS_CACHE is set", "unset TRANSFORMERS_CACHE"),
        (
            {"NEURON_RT_VISIBLE_CORES": "0-3", "NEURON_RT_NUM_CORES": "4"},
            "both set",
            "unset NEURON_RT_NUM_CORES",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_variables_that_do_nothing_or_contradict(
    run: Run, env: dict[str, str], what: str, fix: str
) -> None:
    done = run("doctor", "--json", **env)
    found = findings(done, "variables")
    assert any(what in f["what"] and f["level"] == "warning" for f in found)
    assert any(fix in f["fix"] for f in found)


def test_variable_that_stops_a_build(run: Run, toolchain: StandIn) -> None:
    done = run(
        "doctor", "--target=trn2", f"--toolchain={toolchain.file}", "--for=build", "--json",
        NXD_LAYOUT_TRANSFORMATION_OPTIONS="x",
    )  # fmt: skip
    assert done.code == 10
    assert any(f["level"] == "problem" for f in findings(done, "variables"))


def test_token_is_never_shown(run: Run) -> None:
    token = "hf_" + "t" * 34
    for more in ((), ("--json",)):
        done = run("doctor", *more, HF_TOKEN=token)
        assert token not in done.out + done.err
    assert "with a token" in run("doctor", HF_TOKEN=token).out


def test_store_that_cannot_be_written_is_a_warning(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("--store", "/proc/nowhere", "doctor", "--json")
    assert findings(done, "disk, store")[0]["level"] == "warning"


def test_check_that_breaks_is_a_finding() -> None:
    def strange(patient: Patient) -> list[Finding]:
        raise ZeroDivisionError

    patient = Patient(parse_target("cpu"), None, load_settings())
    (finding,) = _looked(strange, patient)
    assert finding.level == "warning"
    assert "ZeroDivisionError" in finding.what


# --- devices


def listed(rows: list[dict[str, Any]], target: str = "trn2") -> dict[str, Finding]:
    patient = Patient(parse_target(target), None, load_settings())
    found = doctor_neuron._listed(parse_devices(json.dumps(rows)), patient)
    return {finding.subject: finding for finding in found}


def test_devices_of_the_target() -> None:
    assert set(listed(trn2())) == {"devices, cores"}
    assert "16 devices, 64 logical cores" in listed(trn2())["devices, cores"].what


def test_devices_of_another_chip_or_lnc() -> None:
    assert listed(trn2(), "trn1")["devices, chip"].stops == "run"
    rows = [
        {**row, "logical_neuroncore_config": 1, "nc_count": 8, "neuroncore_ids": None}
        for row in trn2()
    ]
    finding = listed(rows)["devices, LNC"]
    assert "LNC 1; the target has 2" in finding.what
    with pytest.raises(RunError, match="LNC 2, and the devices are set to 1"):
        check_lnc(2, parse_devices(json.dumps(rows)))
    check_lnc(1, parse_devices(json.dumps(rows)))


def test_devices_that_somebody_holds() -> None:
    some = listed(trn2(neuron_processes=HELD))["devices, busy"]
    assert some.level == "warning"
    assert "4 of 64 cores are held by pid 4242" in some.what
    every = [{**row, "neuron_processes": HELD} for row in trn2()]
    assert listed(every)["devices, busy"].stops == "run"


def test_device_nodes(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:
        check_device("trn2", tmp_path)
    assert caught.value.exit_code == 10
    assert "export" in str(caught.value.hint)
    (tmp_path / "neuron0").touch()
    check_device("trn2", tmp_path)


def test_program_of_other_versions() -> None:
    built = {"toolchain": {"neuronx-distributed-inference": "0.9.1", "neuronx-cc": "2.24"}}
    check_runtime(built, {"neuronx-distributed-inference": "0.9.1", "neuronx-cc": "9"})
    with pytest.raises(RunError, match=r"0\.9\.1 then, 0\.8\.0 here"):
        check_runtime(built, {"neuronx-distributed-inference": "0.8.0"})
    with pytest.raises(RunError, match="none here"):
        check_runtime(built, {})


def test_run_without_a_device_ends_before_a_compile(
    run: Run, llama: Path, toolchain: StandIn, tmp_path: Path
) -> None:
    toolchain.forget()
    done = run(
        "--store", str(tmp_path), "run", str(llama), "hello", "--target=trn2", "--seq-len=64",
        f"--toolchain={toolchain.file}", "--json",
    )  # fmt: skip
    assert done.code == 10
    assert "no Neuron device" in done.document["error"]["message"]
    assert not toolchain.calls
