"""The doctor on this machine and on broken ones; it never fails to answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import ConfigError, RunError
from neuroncompile.hardware.neuron_ls import parse_devices
from neuroncompile.hardware.targets import parse_target
from neuroncompile.pipeline import doctor, doctor_devices, doctor_host, doctor_neuron
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
    found = doctor_devices._listed(parse_devices(json.dumps(rows)), patient)
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
    assert some.what == "4 of 64 cores are held: 0-3 by pid 4242 (python serve.py)"
    every = [{**row, "neuron_processes": HELD} for row in trn2()]
    assert listed(every)["devices, busy"].stops == "run"


def test_cores_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0-3")
    every = listed(trn2(neuron_processes=HELD))["devices, busy"]
    assert (every.what[:24], every.stops) == ("4 of 4 cores are held: 0", "run")
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "60-65")
    absent = listed(trn2())["devices, visible"]
    assert "names 64-65, which this host has not" in absent.what
    assert absent.stops == "run"


class Machine:
    """A host with Neuron devices, as the doctor's checks of devices see it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        for name in ("dev", "proc", "sys/module/neuron", "neuron/lib", "bin"):
            (root / name).mkdir(parents=True)
        for number in range(16):
            (root / f"dev/neuron{number}").touch()
        (root / "sys/module/neuron/version").write_text("2.27.4.0\n")
        (root / "proc/modules").write_text("neuron 1 0 - Live 0x0\n")
        (root / "neuron/lib/libnrt.so.1").touch()
        self.answer("cat <<'EOF'\n" + json.dumps(trn2()) + "\nEOF")
        for name in ("dev", "proc", "sys", "neuron"):
            monkeypatch.setattr(doctor_devices, name.upper(), root / name)
        monkeypatch.setenv("PATH", f"{root}/bin:/usr/bin:/bin")

    def answer(self, text: str) -> None:
        path = self.root / "bin" / "neuron-ls"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def look(self, toolchain: str | None = "sdk-2.29") -> dict[str, Finding]:
        patient = Patient(parse_target("trn2"), toolchain, load_settings())
        return {finding.subject: finding for finding in doctor_devices.devices(patient)}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_machine_in_good_health(machine: Machine) -> None:
    found = machine.look()
    assert {finding.level for finding in found.values()} == {"ok"}
    assert found["devices"].what == "16 device nodes"
    assert found["driver"].what == "driver 2.27.4.0"


def test_driver_older_than_the_toolchain(machine: Machine) -> None:
    (machine.root / "sys/module/neuron/version").write_text("2.26.10.0\n")
    assert machine.look()["driver"].what == "driver 2.26.10.0 is older than SDK 2.29.1's 2.27.4.0"
    assert machine.look("sdk-2.28")["driver"].level == "ok"
    assert machine.look(None)["driver"].level == "ok"


def test_driver_that_is_not_loaded(machine: Machine) -> None:
    (machine.root / "sys/module/neuron/version").unlink()
    (machine.root / "proc/modules").write_text("neuron_other 1 0 - Live 0x0\n")
    assert machine.look()["driver"].fix == "sudo modprobe neuron"
    (machine.root / "proc/modules").unlink()
    assert machine.look()["driver"].level == "ok"


def test_runtime_that_is_not_installed(machine: Machine) -> None:
    (machine.root / "neuron/lib/libnrt.so.1").unlink()
    finding = machine.look()["runtime"]
    assert (finding.level, finding.stops) == ("problem", "run")
    assert "install aws-neuronx-runtime-lib" in finding.fix


def test_nodes_that_may_not_be_opened(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = doctor_devices.os.access
    monkeypatch.setattr(doctor_devices.os, "access", lambda path, mode: "neuron1" not in str(path))
    assert machine.look()["devices"].what == "neuron1 and 6 more may not be opened"
    monkeypatch.setattr(doctor_devices.os, "access", allowed)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("echo 'no driver' >&2; exit 1", "neuron-ls fails: no driver"),
        ("echo '[7]'", "not understood"),
        ("echo '[]'", "0 devices"),
    ],
)
def test_tool_that_does_not_answer(machine: Machine, text: str, what: str) -> None:
    machine.answer(text)
    assert any(what in finding.what for finding in doctor_devices.devices(
        Patient(parse_target("trn2"), None, load_settings())
    ))  # fmt: skip


def test_no_device_stops_running_alone(machine: Machine) -> None:
    for node in (machine.root / "dev").iterdir():
        node.unlink()
    assert machine.look()["devices"].stops == "run"


# --- toolchain, libraries, variables, disk, settings


def test_versions_of_two_releases(run: Run, toolchain: StandIn, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    text = toolchain.file.read_text()
    other.write_text(text.replace("0.18.27753", "0.17.26814").replace('nki = "0.3.0"\n', ""))
    done = run("doctor", "--target=trn2", f"--toolchain={other}", "--json")
    (finding,) = findings(done, "toolchain, release")
    assert finding["level"] == "warning"
    assert finding["what"] == (
        "most is of SDK 2.29.1, and neuronx-distributed 0.17.26814 is of SDK 2.28.1; nki is missing"
    )
    done = run("doctor", "--target=trn2", f"--toolchain={toolchain.file}", "--json")
    assert findings(done, "toolchain, release")[0]["what"] == "SDK 2.29.1"


def test_library_by_the_name_that_is_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    patient = Patient(parse_target("trn2"), None, load_settings())
    monkeypatch.setattr(doctor_neuron, "LIBXML2", "libc.so.6")
    assert doctor_neuron.libraries(patient)[0].level == "ok"
    monkeypatch.setattr(doctor_neuron, "LIBXML2", "libxml2.so.999")
    (finding,) = doctor_neuron.libraries(patient)
    assert (finding.level, finding.stops) == ("problem", "build")
    assert finding.fix.endswith("install libxml2")


@pytest.mark.parametrize("name", ["NEURON_LOGICAL_NC_CONFIG", "NEURON_RT_VIRTUAL_CORE_SIZE"])
def test_logical_cores_of_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = Patient(parse_target("trn2"), None, load_settings())
    monkeypatch.setenv(name, "2")
    assert doctor_neuron.neuron_variables(patient) == []
    monkeypatch.setenv(name, "1")
    (finding,) = doctor_neuron.neuron_variables(patient)
    assert finding.what == f"{name} is 1; trn2 has LNC 2 by itself"


def test_mounts_that_execute_nothing(tmp_path: Path) -> None:
    """A store for cpu on such a mount cannot be run from; the writable ones of this host are."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, _, options, *_ = line.split()
        finding = doctor_host._place("store", Path(place), True)
        if "written" not in finding.what:
            assert ("noexec" in finding.what) == ("noexec" in options.split(","))
    assert doctor_host._place("store", tmp_path / "a" / "b", True).what.endswith(str(tmp_path))


@pytest.mark.parametrize(
    ("tier", "level", "what"),
    [
        ("s3://bucket/x", "ok", "s3://bucket/x (NEURONCOMPILE_TIER)"),
        ("file:///nowhere/at/all", "warning", "there is no such directory"),
        ("ftp://host/x", "problem", "ftp"),
    ],
)
def test_tiers_without_a_request(run: Run, tier: str, level: str, what: str) -> None:
    done = run("doctor", "--json", NEURONCOMPILE_TIER=tier)
    (finding,) = findings(done, "tier")
    assert finding["level"] == level
    assert what in finding["what"]


def test_settings_that_cannot_be_read_are_a_finding(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("stroe = 'x'\n")
    for env in (
        {"NEURONCOMPILE_SETTINGS": str(file)},
        {"NEURONCOMPILE_LAYERS": "/nowhere/at/all"},
        {"NEURONCOMPILE_JOBS": "many"},
    ):
        done = run("doctor", "--json", **env)
        assert done.code == 10
        (finding,) = findings(done, "settings")
        assert finding["level"] == "problem"
        assert finding["fix"]
        assert findings(done, "memory")


def test_host_below_every_level(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(text: str) -> Any:
        raise ConfigError("this host runs no level", hint="build elsewhere")

    monkeypatch.setattr(doctor, "parse_target", none)
    target, (finding,) = doctor._target("")
    assert target.is_cpu
    assert (finding.subject, finding.stops) == ("processor", "both")
    with pytest.raises(ConfigError):
        doctor._target("cpu:x86-64-v9")
    assert run("doctor", "--target=tnr2").code == 5


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
