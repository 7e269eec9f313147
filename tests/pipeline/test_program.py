"""Programs for Neuron around a stand-in compiler that counts its calls and fails as told.

The stand-ins have the vendor's names, files, log lines and order of events; what neuronx-cc makes
of a graph is not tried here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.hardware.neff import read_neff
from tests.conftest import ROOT, Done, Run, write_llama
from tests.standins.toolchain import StandIn, fails

SIZES = ("--seq-len=64", "--context-encoding-buckets=32,64", "--token-generation-buckets=64")
FIRST = [
    ("context_encoding_model", 32),
    ("context_encoding_model", 64),
    ("token_generation_model", 64),
]
BUG = "[INTERNAL_ERROR] [NCC_ILCM902] LegalizeCCOp error"  # in no table
SEEN = {
    "BASE_COMPILE_WORK_DIR", "HF_HUB_OFFLINE", "HOME", "LC_ALL", "LD_LIBRARY_PATH",
    "NEURON_CC_FLAGS", "NEURON_COMPILE_CACHE_URL", "NEURON_LOGICAL_NC_CONFIG",
    "NEURON_PLATFORM_TARGET_OVERRIDE", "PATH", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "TMPDIR",
    "TOKENIZERS_PARALLELISM", "TRANSFORMERS_OFFLINE", "USER",
}  # fmt: skip
"""All that a compiler may see of an environment besides the key's `compiler.env`."""
TOO_LARGE = (
    "2026-05-01T10:11:12Z [ERROR] [NCC_EBVF030] The number of instructions generated exceeds "
    "the limit"
)


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return StandIn(tmp_path_factory.mktemp("sdk") / "venv")


class Bench:
    """A store and cache of a test's own, and the command line on them."""

    def __init__(self, run: Run, model: Path, toolchain: StandIn, place: Path) -> None:
        self.run, self.model, self.toolchain, self.place = run, model, toolchain, place
        toolchain.rules()
        toolchain.forget()

    def build(
        self, *more: str, store: str = "store", model: Path | None = None, **env: str
    ) -> Done:
        return self.run(
            "--store",
            str(self.place / store),
            "build",
            str(model or self.model),
            "--target=trn2",
            f"--toolchain={self.toolchain.file}",
            *(() if any(m.startswith("--seq-len") for m in more) else SIZES),
            *more,
            XDG_CACHE_HOME=str(self.place / "cache"),
            **env,
        )

    def failed(self, *more: str, **env: str) -> dict[str, Any]:
        done = self.build("--json", *more, **env)
        assert done.code, done.err
        error: dict[str, Any] = done.document["error"]
        return {"exit": done.code, "stderr": done.err, **error, **error["details"]}

    def cached_failures(self) -> list[Path]:
        """Entries of the vendor's cache that have no NEFF."""
        entries = (self.place / "cache" / "neuroncompile" / "neff").glob("*/MODULE_*")
        return [entry for entry in entries if not (entry / "model.done").exists()]

    def artifacts(self) -> list[Path]:
        return list((self.place / "store" / "v1" / "actions" / "compile").glob("*"))


@pytest.fixture
def bench(run: Run, llama: Path, toolchain: StandIn, tmp_path: Path) -> Bench:
    return Bench(run, llama, toolchain, tmp_path)


def test_build_then_hit(bench: Bench) -> None:
    done = bench.build("--json")
    assert done.code == 0, done.err
    result = done.document["result"]
    assert not result["hit"]
    assert sorted(result["compiled"]) == [
        "context_encoding_model b1 32",
        "context_encoding_model b1 64",
        "token_generation_model b1 64",
    ]
    view = Path(result["path"])
    assert sorted(p.name for p in view.iterdir()) == [
        "compile.log",
        "constructed.json",
        "model.pt",
        "program.json",
    ]
    program = json.loads((view / "program.json").read_text())
    assert program["target"] == {"platform": "trn2", "lnc": 2}
    assert [(g["submodel"], g["bucket"], g["neff"]["lnc"]) for g in program["graphs"]] == [
        (*row, 2) for row in FIRST
    ]
    constructed = json.loads((view / "constructed.json").read_text())
    assert constructed["neuron_config"]["context_encoding_buckets"] == [32, 64]
    assert "_name_or_path" not in constructed
    assert str(bench.place) not in (view / "constructed.json").read_text()
    assert sorted(bench.toolchain.called()) == FIRST

    again = bench.build("--json")
    assert again.document["result"]["hit"]
    assert len(bench.toolchain.calls) == 3


@pytest.mark.parametrize(
    ("more", "new"),
    [
        ("--context-encoding-buckets=16,32,64", [("context_encoding_model", 16)]),
        ("--token-generation-buckets=64,32", [("token_generation_model", 32)]),
    ],
    ids=["front", "token generation"],
)
def test_one_more_bucket_compiles_only_itself(
    bench: Bench, more: str, new: list[tuple[str, int]]
) -> None:
    """From another store, too: the vendor's cache does not see where it was compiled."""
    assert bench.build().code == 0
    bench.toolchain.forget()
    done = bench.build(more, "--json", store="another")
    assert done.code == 0, done.err
    called = sorted(bench.toolchain.called())
    if "token" in more:
        # the first token generation graph is the one that decides the layout of weights: as
        # another one takes its place it is compiled anew, as one of the others
        assert called == [*new, ("token_generation_model", 64)]
    else:
        assert called == new
        assert done.document["result"]["compiled"] == [f"{new[0][0]} b1 {new[0][1]}"]


@pytest.mark.slow
def test_one_more_bucket_at_the_end(bench: Bench) -> None:
    assert bench.build("--seq-len=128", "--context-encoding-buckets=32,64").code == 0
    bench.toolchain.forget()
    done = bench.build("--seq-len=128", "--context-encoding-buckets=32,64,128")
    assert done.code == 0, done.err
    assert bench.toolchain.called() == [("context_encoding_model", 128)]


@pytest.mark.slow
def test_compiler_sees_the_keys_inputs_and_no_others(bench: Bench) -> None:
    env = {
        "HF_TOKEN": "hf_" + "s" * 34,
        "NEURON_CC_FLAGS": "--enable-mixed-precision --log_level=1",
        "NEURON_FUSE_SOFTMAX": "1",
    }
    built = bench.build("-O3", "--json", **env)
    assert built.code == 0, built.err
    key = built.document["result"]["key"]
    shown = bench.run("--store", str(bench.place / "store"), "store", "show", key, "--json")
    compiler = shown.document["result"]["spec"]["compiler"]
    assert compiler["args"] == ["--enable-mixed-precision"]  # a level of logging is in no key
    assert compiler["env"] == {"NEURON_FUSE_SOFTMAX": "1"}
    for call in bench.toolchain.calls:
        assert call["env"]["NEURON_CC_FLAGS"] == "--enable-mixed-precision"
        assert compiler["env"].items() <= call["env"].items()
        assert call["env"].keys() <= {*SEEN, *compiler["env"]}
    flags = [call["flags"] for call in bench.toolchain.calls]
    assert all(" -O3" in f and "-O1" not in f and "-O2" not in f for f in flags)
    assert all("--lnc=2" in f and "--target=trn2" in f for f in flags)
    logs = {f.partition("--logfile=")[2].split()[0] for f in flags}
    assert len(logs) == 3
    assert all(str(bench.place) not in f for f in flags)


def test_unknown_keyword_of_nxdi_is_refused_before_a_compile(bench: Bench) -> None:
    """One that our schema was made to let through, and NxDI drops."""
    error = bench.failed("--set=made_up_keyword=1", "--allow-unknown")
    assert (error["exit"], error["field"]) == (5, "made_up_keyword")
    assert "drops" in error["message"]
    assert not bench.toolchain.calls


@pytest.mark.slow
def test_more_than_one_node_is_refused_by_name(bench: Bench) -> None:
    error = bench.failed(
        "--tensor-parallel-size=2", "--set=world_size=4", "--set=local_ranks_size=2"
    )
    assert (error["exit"], error["field"]) == (5, "local_ranks_size")
    assert not bench.toolchain.calls


# --- the ways a compile fails


def test_rejected_graph_is_remembered(bench: Bench) -> None:
    bench.toolchain.rules(fails([TOO_LARGE], submodel="token_generation_model"))
    error = bench.failed()
    assert (error["exit"], error["code"], error["kind"]) == (6, "NCC_EBVF030", "config")
    assert (error["submodel"], error["bucket"]) == ("token_generation_model", 64)
    assert error["versions"]["neuronx-cc"] == "2.24.8799.0+6f62ff7c"
    assert "--tensor-parallel-size" in error["hint"]
    assert Path(error["log"]).is_file()
    assert not bench.artifacts()
    assert not bench.cached_failures()

    calls = len(bench.toolchain.calls)
    again = bench.failed()
    assert again["remembered"]
    assert len(bench.toolchain.calls) == calls

    bench.toolchain.rules()
    assert bench.build("--retry-failed").code == 0


@pytest.mark.slow
def test_status_says_nothing_and_the_compilers_own_code_wins(bench: Bench) -> None:
    lines = ["[ERROR] [F137] neuronx-cc was forcibly killed", TOO_LARGE]
    bench.toolchain.rules(fails(lines, submodel="context_encoding_model", bucket=64))
    error = bench.failed()
    assert (error["code"], error["kind"], error["bucket"]) == ("NCC_EBVF030", "config", 64)


def test_intermittent_error_is_tried_again_alone_of_its_graph(bench: Bench) -> None:
    bench.toolchain.rules(fails([BUG], submodel="context_encoding_model", bucket=32, times=1))
    done = bench.build("--json")
    assert done.code == 0, done.err
    assert sorted(bench.toolchain.called()) == sorted([*FIRST, ("context_encoding_model", 32)])
    assert not bench.cached_failures()


@pytest.mark.slow
def test_compiler_bug_that_stays_is_given_up(bench: Bench) -> None:
    bench.toolchain.rules(fails([BUG], submodel="context_encoding_model", bucket=32))
    error = bench.failed()
    assert (error["exit"], error["kind"], error["code"]) == (6, "intermittent", "NCC_ILCM902")
    assert error["attempts"] == 2
    assert "--reproduce" in error["hint"]
    # the others were compiled, and stay
    bench.toolchain.rules()
    bench.toolchain.forget()
    assert bench.build().code == 0
    assert bench.toolchain.called() == [("context_encoding_model", 32)]


@pytest.mark.parametrize("mode", ["silent", "truncated"])
def test_success_without_a_whole_neff_is_no_success(bench: Bench, mode: str) -> None:
    bench.toolchain.rules({"mode": mode, "submodel": "context_encoding_model", "bucket": 64})
    error = bench.failed()
    assert (error["exit"], error["class"]) == (6, "bad_output")
    assert error["bucket"] == 64
    assert not bench.artifacts()
    assert not bench.cached_failures()
    bench.toolchain.rules({"mode": mode, "submodel": "context_encoding_model", "times": 1})
    done = bench.build()
    assert done.code == 0, done.err


@pytest.mark.slow
def test_neff_for_another_target_or_lnc_is_refused(bench: Bench) -> None:
    bench.toolchain.rules({"mode": "ok", "target": "trn1", "bucket": 32})
    error = bench.failed()
    assert error["exit"] == 6
    assert "trn1" in error["message"]
    assert not bench.artifacts()
    bench.toolchain.rules({"mode": "ok", "lnc": 1, "bucket": 32})
    assert "LNC 1, not 2" in " ".join(bench.failed()["wrong"])
    bench.toolchain.rules()
    done = bench.build()  # what the vendor's cache keeps is not served again
    assert done.code == 0, done.err


def test_killed_compiler_is_tried_alone_then_named(bench: Bench) -> None:
    rule = {"mode": "killed", "submodel": "context_encoding_model", "bucket": 64}
    bench.toolchain.rules(rule)
    error = bench.failed("--jobs=2")
    assert (error["exit"], error["kind"]) == (6, "host_memory")
    assert "memory" in error["message"]
    assert "--jobs" in error["hint"]
    assert not bench.cached_failures()
    bench.toolchain.rules({**rule, "times": 1})
    done = bench.build("--jobs=2")
    assert done.code == 0, done.err
    assert "alone" in done.err


@pytest.mark.slow
def test_killed_worker_is_host_memory_too(bench: Bench) -> None:
    """The kernel takes the largest process, and that may be the one that traces."""
    bench.toolchain.rules({"mode": "kill_parent", "times": 1})
    done = bench.build("--jobs=2")
    assert done.code == 0, done.err
    assert "memory" in done.err


@pytest.mark.slow
def test_hang_ends_at_the_time_limit(bench: Bench) -> None:
    bench.toolchain.rules({"mode": "hang", "submodel": "token_generation_model"})
    error = bench.failed(NEURONCOMPILE_TIME_LIMIT="4")
    assert (error["exit"], error["class"]) == (6, "stopped")
    assert not bench.artifacts()
    time.sleep(0.3)
    left = subprocess.run(["pgrep", "-f", str(bench.toolchain.directory)], capture_output=True)
    assert not left.stdout, "a compiler outlived its build"


@pytest.mark.slow
def test_one_in_eight_at_random_ends_well(bench: Bench) -> None:
    """Every eighth call fails; each program is built all the same."""
    bench.toolchain.rules(fails([BUG], every=8))
    buckets = [",".join(map(str, range(first, 65, 8))) for first in (8, 16, 24)]
    for text in buckets:
        done = bench.build(
            "--seq-len=64", f"--context-encoding-buckets={text}", "--token-generation-buckets=64"
        )
        assert done.code == 0, done.err
    failed = len(bench.toolchain.calls) // 8
    assert failed >= 1
    assert len(bench.toolchain.calls) == 9 + failed


@pytest.mark.slow
def test_full_disk_is_the_stores_error(bench: Bench) -> None:
    bench.toolchain.rules(fails(["OSError: [Errno 28] No space left on device"], bucket=32))
    assert bench.failed()["exit"] == 7
    assert not bench.cached_failures()


@pytest.mark.slow
def test_missing_library_is_the_environments(bench: Bench) -> None:
    line = (
        "neuronx-cc: error while loading shared libraries: libxml2.so.2: cannot open shared object"
    )
    bench.toolchain.rules(fails([line], bucket=32))
    error = bench.failed()
    assert (error["exit"], error["kind"]) == (6, "environment")
    assert "libxml2" in error["hint"]
    bench.toolchain.rules()
    assert bench.build().code == 0  # nothing was remembered


@pytest.mark.slow
def test_fallback_builds_another_program(bench: Bench) -> None:
    line = "[ERROR] [F137] neuronx-cc was forcibly killed"
    bench.toolchain.rules(fails([line], submodel="token_generation_model"))
    plain = bench.failed()
    assert "--fallback" in plain["hint"]
    assert plain["kind"] == "host_memory"
    # at -O1 it passes: rules cannot see flags, so it is let pass after the attempts at -O2
    bench.toolchain.rules(fails([line], submodel="token_generation_model", times=1))
    done = bench.build("--fallback", "--jobs=1", "--json")
    assert done.code == 0, done.err
    assert "another program" in done.err
    flags = {call["flags"].count(" -O1") for call in bench.toolchain.calls[-2:]}
    assert flags == {1}


@pytest.mark.slow
def test_ctrl_c_keeps_finished_graphs(bench: Bench, tmp_path: Path) -> None:
    bench.toolchain.rules(
        {"mode": "ok", "seconds": 60, "submodel": "context_encoding_model", "bucket": 64}
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    process = subprocess.Popen(
        [
            sys.executable, "-m", "neuroncompile", "--store", str(tmp_path / "store"), "build",
            str(bench.model), "--target=trn2", f"--toolchain={bench.toolchain.file}", *SIZES,
            "--jobs=2",
        ],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(bench.toolchain.calls) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(2)  # the short ones end
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130, stderr
    assert "kept in the compiler's cache" in stderr
    bench.toolchain.rules()
    bench.toolchain.forget()
    assert bench.build().code == 0
    assert bench.toolchain.called() == [("context_encoding_model", 64)]


@pytest.mark.slow
def test_killed_build_leaves_nothing_and_resumes(bench: Bench, tmp_path: Path) -> None:
    """kill -9 of the whole command: its worker and compilers go, too."""
    bench.toolchain.rules(
        {"mode": "ok", "seconds": 60, "submodel": "context_encoding_model", "bucket": 64}
    )
    process = subprocess.Popen(
        [
            sys.executable, "-m", "neuroncompile", "--store", str(tmp_path / "store"), "build",
            str(bench.model), "--target=trn2", f"--toolchain={bench.toolchain.file}", *SIZES,
            "--jobs=2",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(bench.toolchain.calls) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(2)
    process.kill()
    process.wait()
    time.sleep(1)
    left = subprocess.run(["pgrep", "-f", str(bench.toolchain.directory)], capture_output=True)
    assert not left.stdout
    assert not bench.artifacts()
    bench.toolchain.rules()
    bench.toolchain.forget()
    assert bench.build().code == 0
    assert bench.toolchain.called() == [("context_encoding_model", 64)]


@pytest.mark.slow
def test_two_builds_of_a_family_take_turns(bench: Bench, tmp_path: Path) -> None:
    """Their work directory is one; NxD empties it when it starts."""
    bench.toolchain.rules({"mode": "ok", "seconds": 3, "bucket": 32})
    first = subprocess.Popen(
        [
            sys.executable, "-m", "neuroncompile", "--store", str(tmp_path / "store"), "build",
            str(bench.model), "--target=trn2", f"--toolchain={bench.toolchain.file}", *SIZES,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not bench.toolchain.calls and time.monotonic() < deadline:
        time.sleep(0.05)
    second = bench.build("--context-encoding-buckets=16,32,64")
    assert first.wait(60) == 0, first.communicate()[1]
    assert second.code == 0, second.err
    assert "its turn is first" in second.err
    assert sorted(bench.toolchain.called()) == sorted([*FIRST, ("context_encoding_model", 16)])


# --- toolchains


@pytest.mark.slow
def test_another_toolchain_than_asked_is_refused(
    bench: Bench, run: Run, llama: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.toml"
    text = bench.toolchain.file.read_text().replace("2.24.8799.0+6f62ff7c", "2.23.6484.0+3b612583")
    other.write_text(text)
    done = run(
        "--store", str(tmp_path / "store"), "build", str(llama), "--target=trn2",
        f"--toolchain={other}", *SIZES, "--json",
    )  # fmt: skip
    assert done.code == 5
    message = done.document["error"]["message"]
    assert "2.23.6484.0+3b612583 asked" in message
    assert "2.24.8799.0+6f62ff7c here" in message


@pytest.mark.slow
def test_an_sdk_names_windows_and_a_compile_needs_versions(
    bench: Bench, run: Run, llama: Path, tmp_path: Path
) -> None:
    done = run(
        "--store", str(tmp_path / "store"), "build", str(llama), "--target=trn2",
        "--toolchain=sdk-2.29", *SIZES, "--json",
        NEURONCOMPILE_NEURON_PYTHON=bench.toolchain.python,
    )  # fmt: skip
    assert done.code == 5
    assert "toolchain freeze --python" in done.document["error"]["hint"]


@pytest.mark.slow
def test_interpreters_identity_is_the_toolchain_where_none_is_named(
    bench: Bench, run: Run, llama: Path, tmp_path: Path
) -> None:
    done = run(
        "--store", str(tmp_path / "store"), "build", str(llama), "--target=trn2", *SIZES,
        "--json", NEURONCOMPILE_NEURON_PYTHON=bench.toolchain.python,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.document["result"]["key"] == bench.build("--json").document["result"]["key"]


# --- weights


def test_shards_are_of_the_model_that_is_asked_for(bench: Bench, tmp_path: Path) -> None:
    """Fine-tune A is built, B hits; A's checkpoint is still there, and B's weights are cut."""
    other = write_llama(tmp_path / "other", seed=7)
    first = bench.build("--shard", "--tensor-parallel-size=2", "--json").document["result"]
    second = bench.build("--shard", "--tensor-parallel-size=2", "--json", model=other).document
    second = second["result"]
    assert second["hit"]
    assert second["key"] == first["key"]
    assert second["shards"] != first["shards"]
    names = ["tp0_sharded_checkpoint.safetensors", "tp1_sharded_checkpoint.safetensors"]
    for result, model in ((first, bench.model), (second, other)):
        directory = Path(result["shards_path"]) / "weights"
        assert sorted(p.name for p in directory.iterdir()) == names
        data = (model / "model.safetensors").read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        first_byte, last = header["model.norm.weight"]["data_offsets"]
        norm = data[8 + size + first_byte : 8 + size + last]
        embedding = header["model.embed_tokens.weight"]["data_offsets"]
        rows = data[8 + size + embedding[0] : 8 + size + (embedding[0] + embedding[1]) // 2]
        shard = (directory / names[0]).read_bytes()
        assert norm[: len(norm) // 2] in shard
        assert rows in shard
    again = bench.build("--shard", "--tensor-parallel-size=2", "--json", model=other).document
    assert again["result"]["shards_hit"]
    store = str(bench.place / "store")
    rows = bench.run("--store", store, "store", "ls", "--kind=shard", "--json").document["result"][
        "artifacts"
    ]
    assert {row["what"] for row in rows} == {"weights in float32, cut for 2 ranks"}


@pytest.mark.slow
def test_shards_of_a_program_at_hand_are_cut_by_its_own_toolchain(
    bench: Bench, tmp_path: Path
) -> None:
    """The program is found without asking a compiler; the key of its shards names one still."""
    assert bench.build().code == 0
    other = StandIn(tmp_path / "sdk", {"neuronx-distributed-inference": "0.7.1"})
    text = bench.toolchain.file.read_text().replace(bench.toolchain.python, other.python)
    moved = tmp_path / "moved.toml"
    moved.write_text(text)
    done = bench.build("--shard", "--json", f"--toolchain={moved}")
    assert done.code == 5, done.err
    assert (
        "neuronx-distributed-inference 0.9.17334 asked, 0.7.1 here"
        in (done.document["error"]["message"])
    )
    assert not list((bench.place / "store" / "v1" / "actions" / "shard").glob("*"))


@pytest.mark.slow
def test_shards_do_not_depend_on_buckets(bench: Bench) -> None:
    first = bench.build("--shard", "--json").document["result"]
    second = bench.build("--shard", "--json", "--token-generation-buckets=32,64").document["result"]
    assert first["key"] != second["key"]
    assert first["shards"] == second["shards"]


QUANTISED = (
    "--set=quantized=true",
    "--set=quantization_dtype=int8",
    "--set=quantization_type=per_tensor_symmetric",
)


@pytest.mark.slow
def test_quantised_weights_are_made_and_cut_once(bench: Bench, tmp_path: Path) -> None:
    first = bench.build("--shard", *QUANTISED, "--json").document["result"]
    packs = list((bench.place / "store" / "v1" / "actions" / "pack").glob("*"))
    assert len(packs) == 1
    again = bench.build("--shard", *QUANTISED, "--json", "--token-generation-buckets=32,64")
    assert again.document["result"]["shards"] == first["shards"]
    assert again.document["result"]["shards_hit"]
    plain = bench.build("--shard", "--json").document["result"]
    assert plain["shards"] != first["shards"]
    source = (bench.model / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(source[:8], "little")
    shard = Path(first["shards_path"]) / "weights" / "tp0_sharded_checkpoint.safetensors"
    assert bytes(byte >> 1 for byte in source[start : start + 64]) in shard.read_bytes()


@pytest.mark.slow
def test_image_to_text_is_two_programs(bench: Bench, tmp_path: Path) -> None:
    text = {
        "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
        "num_key_value_heads": 4, "num_hidden_layers": 2, "vocab_size": 300,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
    }  # fmt: skip
    vision = {"depth": 2, "embed_dim": 64, "hidden_size": 64, "num_heads": 4, "patch_size": 14}
    config = {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        "torch_dtype": "float32",
        **text,
        "text_config": text,
        "vision_config": vision,
    }
    model = tmp_path / "vl"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config))
    (model / "model.safetensors").write_bytes((bench.model / "model.safetensors").read_bytes())
    own = {"batch_size": 1, "seq_len": 64, "buckets": [1, 4], "fused_qkv": True}
    done = bench.build(f"--set=vision_neuron_config={json.dumps(own)}", "--json", model=model)
    assert done.code == 0, done.err
    result = done.document["result"]
    view = Path(result["path"])
    assert (view / "text_model" / "model.pt").is_file()
    assert (view / "vision_model" / "model.pt").is_file()
    assert "vision_model vision_encoder_model b1 4" in result["compiled"]
    program = json.loads((view / "program.json").read_text())
    assert [g["program"] for g in program["graphs"]].count("vision_model") == 2


def test_neffs_in_the_program_are_those_of_the_compiler(bench: Bench) -> None:
    path = Path(bench.build("--json").document["result"]["path"])
    program = json.loads((path / "program.json").read_text())
    data = (path / "model.pt").read_bytes()
    for graph in program["graphs"]:
        assert graph["neff"]["compiler"] == "2.24.8799.0+6f62ff7c"
        assert len(graph["neff"]["program"]) == 64
    start = data.index((2).to_bytes(8, "little") + (1024).to_bytes(8, "little"))
    assert read_neff(data[start:]).program in {g["neff"]["program"] for g in program["graphs"]}


# --- telling others


def test_failure_leaves_a_bundle_without_secrets(bench: Bench) -> None:
    token = "hf_" + "q" * 34
    bench.toolchain.rules(fails([TOO_LARGE, f"token {token}"], submodel="token_generation_model"))
    error = bench.failed(HF_TOKEN=token)
    with tarfile.open(error["bundle"]) as bundle:
        members = {m.name: bundle.extractfile(m) for m in bundle.getmembers() if m.isfile()}
        text = b"".join(file.read() for file in members.values() if file is not None)
    assert any(name.endswith("graph.hlo") for name in members)
    assert any(name.endswith("spec.json") for name in members)
    assert token.encode() not in text
    assert token not in error["message"] + str(error["last_lines"])


@pytest.mark.slow
def test_reproduce_measures_the_rate(bench: Bench) -> None:
    """From nothing each time: three graphs a run, and every fourth call fails."""
    assert bench.build().code == 0
    bench.toolchain.forget()
    bench.toolchain.rules(fails([BUG], every=4))
    done = bench.build("--reproduce=4", "--json", "--jobs=1")
    assert done.code == 6, done.err
    result = done.document["result"]
    assert (result["runs"], result["failed"], result["codes"]) == (4, 2, {"NCC_ILCM902": 2})
    assert len(bench.toolchain.calls) == 8  # a run ends with the graph that comes first
    low, high = result["interval"]
    assert low < 0.5 < high


@pytest.mark.slow
def test_reduce_finds_what_fails(bench: Bench) -> None:
    """A prompt of 32 tokens crashes the compiler, whatever else the program has."""
    bench.toolchain.rules(fails([TOO_LARGE], submodel="context_encoding_model", bucket=32))
    done = bench.build("--reduce", "--batch-size=4", "--json")
    assert done.code == 6, done.err
    result = done.document["result"]
    assert result["code"] == "NCC_EBVF030"
    assert result["reduced"]["model"]["num_hidden_layers"] == 1
    assert result["reduced"]["neuron"]["context_encoding_buckets"] == [32]
    assert result["reduced"]["neuron"]["batch_size"] == 1
    assert json.loads((Path(result["path"]) / "config.json").read_text())["num_hidden_layers"] == 1
    assert not bench.artifacts()
    assert "nothing to reduce" in _passing(bench)


def _passing(bench: Bench) -> str:
    bench.toolchain.rules()
    done = bench.build("--reduce")
    assert done.code == 0
    return done.out
