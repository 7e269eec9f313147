"""`plan`: what it says, that its suggestions hold, and that it needs no model at hand."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.config.documented import DEEPSEEK_V3, LLAMA_31_8B
from tests.conftest import ROOT, SMALL, Done, Run
from tests.models.hub_server import serve

GIB = 1 << 30
RECIPE = "llama-3.3-70b-trn2"


@pytest.fixture
def deepseek(tmp_path: Path) -> Path:
    """A 671B-parameter model's config.json, and nothing else."""
    directory = tmp_path / "deepseek"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(DEEPSEEK_V3))
    return directory


@pytest.fixture
def llama8(tmp_path: Path) -> Path:
    directory = tmp_path / "llama8"
    directory.mkdir()
    more = {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"}
    positions = {"max_position_embeddings": 131072, "rms_norm_eps": 1e-5}
    (directory / "config.json").write_text(json.dumps({**LLAMA_31_8B, **more, **positions}))
    return directory


def result(done: Done, code: int = 0) -> dict[str, Any]:
    assert done.code == code, done.out + done.err
    found: dict[str, Any] = done.document["result"]
    return found


def test_671b_parameters_from_a_config_alone(run: Run, deepseek: Path) -> None:
    args = ("plan", str(deepseek), "--target=trn2.48xlarge", "--tp=64", "--seq-len=512", "--json")
    found = result(run(*args))
    assert found["parameters"] / 1e9 == pytest.approx(671, rel=0.002)
    assert found["active_parameters"] / 1e9 == pytest.approx(37, rel=0.02)
    memory = found["memory"]
    assert memory["budget"] == 24 * GIB
    assert memory["weights"]["total"] / GIB == pytest.approx(21.4, rel=0.015)
    assert memory["need"] == sum(
        memory[part] for part in ("cache", "scratch", "io", "code", "draft")
    ) + sum(size for group, size in memory["weights"].items() if group != "total")
    assert found["verdict"] == "amber"
    assert (found["key"], found["no_key"]) == (None, "no weights are there")
    assert found["host"]["sharding"]["low"] == pytest.approx(2.0e12, rel=0.05)
    assert found["ranks"] == 64


def test_a_plan_reads_no_weights_and_imports_nothing_heavy(deepseek: Path) -> None:
    heavy = ["torch", "transformers", "numpy", "pydantic", "rich", "asyncio", "huggingface_hub"]
    program = (
        "import sys; from neuroncompile.cli import main; code = main(sys.argv[1:]); "
        f"print([m for m in {heavy} if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "plan", str(deepseek), "--target=trn2.48xlarge"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_red_plan_names_changes_that_hold(run: Run, deepseek: Path) -> None:
    args = ("plan", str(deepseek), "--target=trn2.48xlarge", "--tp=32", "--seq-len=512")
    found = result(run(*args, "--json"))
    assert (found["verdict"], found["memory"]["fraction"] > 1.7) == ("red", True)
    changes = {row["change"]: row for row in found["suggestions"]}
    assert next(iter(changes)) == "tensor parallelism 64 in place of 32"
    assert "FP8 weights, saved to DIR beforehand" in changes
    for row in changes.values():  # as typed by a user
        options = shlex.split(" ".join(row["options"]))
        again = result(run(*args, *options, "--json"))
        assert again["verdict"] == row["verdict"] != "red"
        assert again["memory"]["need"] == row["need"]
        assert again["memory"]["budget"] == row["budget"]


def test_changes_in_the_order_of_what_they_cost(run: Run, llama8: Path) -> None:
    """Cores that are there, fewer and shorter sequences, eight bits, a larger instance."""
    args = ("plan", str(llama8), "--target=inf2.24xlarge", "--tp=2", "--batch-size=16")
    found = result(run(*args, "--seq-len=16384", "--json"))
    assert found["verdict"] == "red"
    kinds = [row["change"].split(" ")[0] for row in found["suggestions"]]
    assert kinds[0] == "tensor"
    assert kinds.index("tensor") < kinds.index("sequences")
    assert "inf2.48xlarge" in kinds[-2:] or "trn1.32xlarge" in kinds[-2:]
    lengths = [row for row in found["suggestions"] if row["change"].startswith("sequences")]
    longest = int(lengths[0]["options"][0].partition("=")[2])
    assert longest % 128 == 0
    longer = result(run(*args, f"--seq-len={longest + 128}", "--json"))
    assert longer["verdict"] == "red"  # it is the longest that fits


def test_pairs_where_no_single_change_is_enough(run: Run, tmp_path: Path) -> None:
    big = {**DEEPSEEK_V3, "num_hidden_layers": 122}
    (tmp_path / "config.json").write_text(json.dumps(big))
    args = ("plan", str(tmp_path / "config.json"), "--target=trn2.48xlarge", "--tp=32")
    found = result(run(*args, "--json"))
    assert found["verdict"] == "red"
    for row in found["suggestions"]:
        assert ", and " in row["change"]
        again = result(run(*args, *shlex.split(" ".join(row["options"])), "--json"))
        assert again["verdict"] == row["verdict"] != "red"
    assert found["suggestions"]
    hopeless = {**DEEPSEEK_V3, "num_hidden_layers": 400}
    (tmp_path / "config.json").write_text(json.dumps(hopeless))
    done = run(*args)
    assert "no change of tensor parallelism" in done.out


def test_check_is_exit_5_when_red_only(run: Run, deepseek: Path) -> None:
    args = ("plan", str(deepseek), "--target=trn2.48xlarge", "--seq-len=512")
    assert run(*args, "--tp=32").code == 0
    red = run(*args, "--tp=32", "--check", "--json")
    assert (red.code, red.document["exit_code"]) == (5, 5)
    assert red.document["result"]["verdict"] == "red"
    assert run(*args, "--tp=64", "--check").code == 0  # amber


def test_a_recipes_facts_give_the_key_of_a_dry_run(run: Run) -> None:
    found = result(run("plan", RECIPE, "--json", "--offline"))
    dry = result(run("build", RECIPE, "--dry-run", "--json", "--offline"))
    assert found["key"] == dry["key"]
    assert [g["name"] for g in found["graphs"]] == [g["name"] for g in dry["graphs"]]
    assert found["verdict"] == "green"
    assert found["memory"]["cache_per_token"] == 80 * 2 * 128 * 2  # one head on each rank


def test_without_a_toolchain_the_sizes_come_without_a_key(run: Run, llama: Path) -> None:
    found = result(run("plan", str(llama), *SMALL, "--target=trn2", "--json"))
    assert found["key"] is None
    assert "toolchain" in found["no_key"]
    named = result(
        run("plan", str(llama), *SMALL, "--target=trn2", "--toolchain=sdk-2.29", "--json")
    )
    assert named["key"] is not None
    assert named["memory"] == found["memory"]
    old = result(run("plan", str(llama), *SMALL, "--target=inf2.xlarge", "--json"))
    assert old["memory"]["budget"] == 16 * GIB


def test_a_known_family_without_weights(run: Run, llama8: Path) -> None:
    base = ("plan", str(llama8), "--target=trn1.2xlarge", "--tp=2", "--json")
    found = result(run(*base))
    assert found["verdict"] == "green"
    assert found["memory"]["cache_per_token"] == 64 * 1024
    assert found["seq_len"] == 4096
    by_file = result(run("plan", str(llama8 / "config.json"), *base[2:]))
    assert by_file["memory"] == found["memory"]


def weights() -> bytes:
    """A safetensors file of one small tensor."""
    header = json.dumps({"x": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
    return len(header).to_bytes(8, "little") + header + b"\0\0"


@pytest.mark.parametrize("toolchain", [(), ("--toolchain=sdk-2.29",)])
def test_an_unknown_family_with_weights(
    run: Run, deepseek: Path, toolchain: tuple[str, ...]
) -> None:
    (deepseek / "model.safetensors").write_bytes(weights())
    args = ("plan", str(deepseek), "--target=trn2.48xlarge", "--tp=64", *toolchain, "--json")
    found = result(run(*args))
    assert "DeepseekV3ForCausalLM" in found["no_key"]
    assert found["parameters"] / 1e9 == pytest.approx(671, rel=0.002)


def test_an_unknown_family_of_the_hub(run: Run, tmp_path: Path) -> None:
    with serve() as hub:
        config = json.dumps(DEEPSEEK_V3).encode()
        hub.repo("org/deep", {"config.json": config, "model.safetensors": weights()})
        env = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "hf")}
        done = run("plan", "org/deep", "--target=trn2.48xlarge", "--tp=64", "--json", **env)
        found = result(done)
        asked = [request for request in hub.requests if "model.safetensors" in request]
    assert found["parameters"] / 1e9 == pytest.approx(671, rel=0.002)
    assert "DeepseekV3ForCausalLM" in found["no_key"]
    assert not (tmp_path / "hf").exists() or not list((tmp_path / "hf").rglob("*.safetensors"))
    assert len(asked) <= 2  # its header at most


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--target=trn2.48xlarge", "--tp=3"), 5, "tp_degree"),
        (("--target=trn2.48xlarge", "--set", "tp_degre=3"), 5, "tp_degree"),
        (("--target=trn9",), 5, "trn"),
        (("--target=trn2", "--price=-1"), 2, "--price"),
        (("-O9", "--target=trn2"), 5, "-O9"),
        ((), 4, "DeepseekV3ForCausalLM"),  # the cpu target must know the family
    ],
)
def test_what_is_refused(
    run: Run, deepseek: Path, args: tuple[str, ...], code: int, message: str
) -> None:
    done = run("plan", str(deepseek), *args)
    assert done.code == code
    assert message in done.err
    assert "hint:" in done.err


def test_no_such_model_is_exit_4(run: Run, tmp_path: Path) -> None:
    assert run("plan", str(tmp_path / "nothing"), "--target=trn2").code == 4
    assert run("plan", "no-such-recipe-at-all").code == 4
    (tmp_path / "config.json").write_text("{}")
    done = run("plan", str(tmp_path), "--target=trn2")
    assert done.code == 4
    assert "hidden_size" in done.err


def test_a_draft_counts(run: Run, llama8: Path, deepseek: Path) -> None:
    args = ("plan", str(deepseek), "--target=trn2.48xlarge", "--tp=64", "--seq-len=512", "--json")
    alone = result(run(*args))
    both = result(run(*args, "--draft-model", str(llama8)))
    assert alone["memory"]["draft"] == 0
    assert both["memory"]["draft"] > 0
    assert both["memory"]["need"] == alone["memory"]["need"] + both["memory"]["draft"]
    refused = run("plan", str(llama8), "--draft-model", str(llama8))
    assert refused.code == 5
    assert "--draft-model" in refused.err


def test_price_and_jobs(run: Run) -> None:
    one = result(run("plan", RECIPE, "--price", "6", "--jobs", "1", "--json"))
    many = result(run("plan", RECIPE, "--price", "6", "--json"))
    assert one["compile"]["jobs"] == 1
    assert one["compile"]["minutes"]["typical"] == pytest.approx(
        5 * many["compile"]["minutes"]["typical"]
    )  # ten graphs one by one, or one and then nine at once
    minutes = one["compile"]["minutes"]
    assert one["cost"]["low"] == round(minutes["low"] / 10, 2)
    assert one["cost"]["high"] == round(minutes["high"] / 10, 2)
    assert result(run("plan", RECIPE, "--json"))["cost"] is None


def test_cpu_weighs_weights_and_cache_against_this_host(
    run: Run, llama: Path, store_root: Path, built_key: str
) -> None:
    found = result(run("plan", str(llama), *SMALL, "--store", str(store_root), "--json"))
    memory = found["memory"]
    assert found["key"] == built_key
    assert memory["of"] == "host"
    assert memory["weights"]["total"] == (llama / "model.safetensors").stat().st_size
    assert memory["cache"] == 2 * 2 * 2 * 16 * 64 * 4 * 2  # one row, and one for padding
    assert memory["need"] == memory["weights"]["total"] + memory["cache"]
    assert found["verdict"] == "green"
    history = found["compile"]["history"]
    assert built_key in [row["key"] for row in history]
    assert all(row["seconds"] > 0 and row["graphs"] > 0 for row in history)
    empty = result(run("plan", str(llama), *SMALL, "--store", str(llama / "none"), "--json"))
    assert empty["compile"]["history"] == []


def test_a_red_cpu_plan_says_how_many_tokens_fit(run: Run, llama8: Path) -> None:
    args = ("plan", str(llama8), "--seq-len=131072", "--batch-size=65536", "--check")
    done = run(*args, "--json")
    found = result(done, 5)
    memory = found["memory"]
    assert found["verdict"] == "red"
    assert memory["cache_per_token"] == 256 * 1024  # float32
    assert memory["cache"] == 256 * 1024 * 131072 * 65537
    left = memory["budget"] * 0.9 - memory["weights"]["total"]
    assert memory["tokens_that_fit"] == max(0, int(left) // (256 * 1024))
    text = run(*args[:-1]).out
    assert {g["submodel"] for g in found["graphs"]} == {
        "context_encoding_model",
        "token_generation_model",
    }
    assert "tokens of cache fit" in text or "the weights alone do not fit" in text


def test_cpu_on_a_host_without_torch(llama8: Path, tmp_path: Path) -> None:
    """Sizes need no compiler; only the key does."""
    lean = tmp_path / "site"
    lean.mkdir()
    for entry in Path(typer.__file__).parents[1].iterdir():
        if not entry.name.startswith("torch"):
            (lean / entry.name).symlink_to(entry)
    command = [sys.executable, "-S", "-m", "neuroncompile", "plan", str(llama8), "--json"]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{lean}"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    found = result(Done(done.returncode, done.stdout, done.stderr))
    assert found["key"] is None
    assert found["memory"]["weights"]["total"] == found["parameters"] * 2
    assert found["graphs"]


def test_every_recipe_fits_its_target(run: Run) -> None:
    listed = run("recipes", "ls", "--json").document["result"]
    assert len(listed) >= 5
    for recipe in listed:
        found = result(run("plan", recipe["path"], "--json", "--offline", "--check"))
        assert found["verdict"] in ("green", "amber")
        assert found["graphs"]


@pytest.mark.parametrize("extra", [(), ("--batch-size=64", "--tp=8"), ("--price=1.5",)])
def test_the_page_is_plain_and_80_columns_when_piped(run: Run, extra: tuple[str, ...]) -> None:
    out = run("plan", RECIPE, *extra).out
    assert "\x1b" not in out
    assert "█" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert "weights" in out
    assert "key-value cache" in out
    assert "none had a graph above 2048 tokens" in out  # this recipe's reach 12,800


def test_short_graphs_are_within_what_was_measured(run: Run, deepseek: Path) -> None:
    out = run("plan", str(deepseek), "--target=trn2.48xlarge", "--tp=64", "--seq-len=512").out
    assert "above 2048 tokens" not in out


def test_bars_and_colour_on_a_terminal(deepseek: Path) -> None:
    command = [sys.executable, "-m", "neuroncompile", "plan", str(deepseek)]
    command += ["--target=trn2.48xlarge", "--tp=32", "--seq-len=512"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    env.pop("NO_COLOR", None)
    leader, follower = os.openpty()
    with subprocess.Popen(command, stdout=follower, stderr=subprocess.DEVNULL, env=env) as child:
        os.close(follower)
        out = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:
                break
            if not piece:
                break
            out += piece
    os.close(leader)
    text = out.decode()
    assert child.returncode == 0
    assert "\x1b[1;31mred\x1b[0m" in text
    [weights] = [line for line in text.splitlines() if line.startswith("  weights  ")]
    assert weights.count("█") == 28  # more than there is: full
    plain = [line for line in text.splitlines() if "\x1b" not in line]
    assert all(len(line) <= 80 for line in plain if str(deepseek) not in line)


def test_a_config_alone_takes_every_layer_that_build_takes(run: Run, deepseek: Path) -> None:
    """No key can be had, and the sizes are those of what was asked for all the same."""
    common = ("plan", str(deepseek), "--target=trn2.48xlarge", "--tp=64", "--json")
    table = '{"batch_size": 3, "seq_len": 512}'
    result = run(*common, "--override-neuron-config", table).document["result"]
    assert (result["batch_size"], result["seq_len"]) == (3, 512)
    vllm = run(*common, "--vllm", "--seq-len=512").document["result"]
    assert (vllm["batch_size"], vllm["seq_len"]) == (32, 512)
