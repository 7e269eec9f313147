"""Plans: the same key for the same meaning, and mistakes found before anything is fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neuroncompile.runtime.sampling import resolve_sampling
from tests.conftest import ROOT, SMALL, Run


def key(run: Run, *args: str, **env: str) -> str:
    done = run("build", *args, "--dry-run", "--json", **env)
    assert done.code == 0, done.out
    found: str = done.document["result"]["key"]
    return found


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--set", "seqlen=4096"), "seq_len"),
        (("--set", "on_device_sampling_config.topk=1"), "top_k"),
        (("--batch-size=0",), "batch_size"),
        (("--seq-len=0",), "seq_len"),
        (("--context-encoding-buckets=128,,512",), "context_encoding_buckets"),
        (("-O9",), "-O9"),
        (("--target=trn9",), "trn"),
        (("--target=cpu:avx",), "x86-64-v3"),
    ],
)
def test_a_mistake_is_found_before_the_model(
    run: Run, tmp_path: Path, args: tuple[str, ...], message: str
) -> None:
    done = run("build", str(tmp_path / "no-model"), *args)
    assert done.code == 5, done.err
    assert message in done.err
    assert "hint:" in done.err


@pytest.mark.parametrize(
    ("args", "numbers"),
    [
        (("--seq-len=129",), ("129", "128")),
        (("--tensor-parallel-size=2",), ("tp_degree", "1")),
        (("--dtype=float8_e4m3fn",), ("float8_e4m3fn", "bfloat16")),
    ],
)
def test_a_value_the_model_forbids_names_both_sides(
    run: Run, llama: Path, args: tuple[str, ...], numbers: tuple[str, str]
) -> None:
    done = run("build", str(llama), *args, "--json")
    assert done.code == 5
    error = done.document["error"]
    assert error["details"]["legal"] is not None
    assert all(n in error["message"] + str(error["details"]) for n in numbers)


def test_dry_run_gives_origins_graphs_and_key(run: Run, llama: Path, tmp_path: Path) -> None:
    done = run("build", str(llama), *SMALL, "--dry-run", "--json", "--store", str(tmp_path / "s"))
    result = done.document["result"]
    origins = {row["name"]: row["origin"] for row in result["config"]}
    assert origins["seq_len"] == "flag --seq-len"
    assert origins["batch_size"] == "default"
    assert origins["torch_dtype"] == "model"
    assert [g["bucket"] for g in result["graphs"] if "layer" in g["name"]] == [64, 16, 64]
    assert len(result["key"]) == 64
    text = run("build", str(llama), *SMALL, "--dry-run").out
    assert result["key"] in text
    assert "flag --seq-len" in text


def test_spellings_of_one_value_give_one_key(run: Run, llama: Path, tmp_path: Path) -> None:
    base = key(run, str(llama), *SMALL)
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        f'schema = 1\n[model]\nref = "{llama}"\n[config]\nseq_len = 64\n'
        "context_encoding_buckets = [16, 64]\ntoken_generation_buckets = [64]\n"
    )
    assert key(run, str(recipe)) == base
    sets = [f"--set={o.removeprefix('--').replace('-', '_')}" for o in SMALL]
    assert key(run, str(llama), *sets) == base
    assert key(run, str(llama), *SMALL, "--batch_size=1", "--dtype=float32") == base


def test_compiler_flags_in_the_environment_are_in_neurons_keys_only(run: Run, llama: Path) -> None:
    recipe = "llama-3.3-70b-trn2"
    base = key(run, recipe)
    flagged = key(run, recipe, NEURON_CC_FLAGS="-O1  --lnc=2")
    assert flagged != base
    assert key(run, recipe, NEURON_CC_FLAGS="--lnc=2 -O1 --cache_dir=/elsewhere") == flagged
    assert key(run, str(llama), *SMALL, NEURON_CC_FLAGS="-O1") == key(run, str(llama), *SMALL)


@pytest.mark.parametrize(
    "recipe", ["llama-3.1-8b-trn1", "llama-3.1-8b-inf2", "llama-3.3-70b-trn2", "qwen3-30b-a3b-trn2"]
)
def test_neuron_recipes_plan_with_nothing_installed(run: Run, recipe: str, tmp_path: Path) -> None:
    done = run("build", recipe, "--dry-run", "--json", "--offline", "--store", str(tmp_path / "s"))
    result = done.document["result"]
    assert (done.code, result["backend"]) == (0, "nxdi")
    assert result["toolchain"]["neuronx-cc"].startswith("2.")
    assert {g["submodel"] for g in result["graphs"]} == {
        "context_encoding_model",
        "token_generation_model",
    }
    assert not (tmp_path / "s").exists()


def test_compiling_for_neuron_needs_its_interpreter(run: Run, llama: Path, tmp_path: Path) -> None:
    common = ("build", str(llama), *SMALL, "--target=trn2", "--store", str(tmp_path / "s"))
    done = run(*common, "--toolchain", "sdk-2.28")
    assert done.code == 5
    assert "NEURONCOMPILE_NEURON_PYTHON" in done.err
    assert run(*common, "--toolchain", "sdk-2.28", "--check").code == 3
    without = run(*common, "--dry-run")
    assert without.code == 5
    assert "toolchain" in without.err


def test_trn1_needs_an_sdk_that_supports_it(run: Run, llama: Path) -> None:
    common = ("build", str(llama), *SMALL, "--target=trn1", "--dry-run", "--toolchain")
    assert run(*common, "sdk-2.28").code == 0
    refused = run(*common, "sdk-2.29")
    assert refused.code == 5
    assert "2.28" in refused.err


def test_no_such_model_and_offline_are_exit_4_with_their_own_words(run: Run) -> None:
    missing = run("build", "./no/such/dir")
    assert missing.code == 4
    typo = run("build", "smolm2-135m")
    assert typo.code == 4
    assert "smollm2-135m" in typo.err
    offline = run("build", "org/name@" + "a" * 40, "--offline")
    assert offline.code == 4
    assert "org/name" in offline.err
    network = run("build", "org/name", HF_ENDPOINT="http://127.0.0.1:9")
    assert network.code == 4
    messages = {d.err.splitlines()[-2] for d in (missing, typo, offline, network)}
    assert len(messages) == 4


def test_one_config_in_two_spellings_is_one_key(run: Run, llama: Path, tmp_path: Path) -> None:
    import shutil

    old = tmp_path / "v4"
    shutil.copytree(llama, old)
    config = json.loads((old / "config.json").read_text())
    config["torch_dtype"] = config.pop("dtype")
    rope = config.pop("rope_parameters")
    config |= {"rope_theta": rope["rope_theta"], "rope_scaling": None}
    (old / "config.json").write_text(json.dumps(config))
    assert key(run, str(old), *SMALL) == key(run, str(llama), *SMALL)


V3 = """schema = 1
[model]
ref = "org/absent-671b"
class = "mine.py:NeuronDeepseekV3"
[model.facts]
architectures = ["DeepseekV3ForCausalLM"]
model_type = "deepseek_v3"
vocab_size = 129280
hidden_size = 7168
intermediate_size = 18432
moe_intermediate_size = 2048
num_hidden_layers = 61
num_attention_heads = 128
num_key_value_heads = 128
n_routed_experts = 256
n_shared_experts = 1
num_experts_per_tok = 8
first_k_dense_replace = 3
kv_lora_rank = 512
q_lora_rank = 1536
qk_rope_head_dim = 64
qk_nope_head_dim = 128
v_head_dim = 128
max_position_embeddings = 163840
rms_norm_eps = 1e-6
torch_dtype = "bfloat16"
rope_theta = 10000
rope_scaling = { type = "yarn", factor = 40, original_max_position_embeddings = 4096 }
[config]
tp_degree = 64
seq_len = 8192
batch_size = 1
[target]
instance = "trn2.48xlarge"
[toolchain]
sdk = "2.28"
"""
PLANNING = """
import json, sys
import typer
from neuroncompile.cli import main
calls = 0
def count(frame, event, argument):
    global calls
    calls += event == "call"
sys.setprofile(count)
code = main(sys.argv[1:])
sys.setprofile(None)
print(json.dumps({"code": code, "calls": calls, "modules": sorted(sys.modules)}))
"""


def test_671_billion_parameters_are_planned_without_any_of_them(tmp_path: Path) -> None:
    """Calls and imports are counted, which is the same on a fast and on a busy machine."""
    (tmp_path / "mine.py").write_text("class NeuronDeepseekV3:\n    pass\n")
    recipe = tmp_path / "v3.toml"
    recipe.write_text(V3)
    command = ["build", str(recipe), "--dry-run", "--json", "--offline"]
    done = subprocess.run(
        [sys.executable, "-c", PLANNING, *command, "--store", str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    document, measured = map(json.loads, done.stdout.splitlines())
    assert (measured["code"], document["exit_code"]) == (0, 0)
    assert document["result"]["spec"]["model"]["n_routed_experts"] == 256
    assert document["result"]["graphs"]
    assert measured["calls"] < 100_000
    loaded = {name.split(".")[0] for name in measured["modules"]}
    assert not loaded & {"torch", "transformers", "numpy", "safetensors", "huggingface_hub"}


@pytest.mark.parametrize("spelling", ["torch_dtype", "dtype"])
def test_dtype_in_both_spellings_is_one_key(
    run: Run, llama: Path, tmp_path: Path, spelling: str
) -> None:
    """And a checkpoint's header counts, whatever its config says or leaves open."""
    import shutil

    base = key(run, str(llama), *SMALL)
    for value in ("float32", "auto", None, "torch.float32", "float16"):
        place = tmp_path / str(value)
        shutil.copytree(llama, place)
        config = json.loads((place / "config.json").read_text())
        config.pop("dtype")
        (place / "config.json").write_text(json.dumps({**config, spelling: value}))
        assert key(run, str(place), *SMALL) == base, value


def test_an_eight_bit_checkpoint_is_refused_by_name(run: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        'schema = 1\n[model]\nref = "org/absent"\n[model.facts]\nmodel_type = "llama"\n'
        "vocab_size = 64\nhidden_size = 32\nintermediate_size = 48\nnum_hidden_layers = 2\n"
        'num_attention_heads = 4\ntorch_dtype = "float8_e4m3fn"\n'
    )
    done = run("build", str(recipe), "--dry-run", "--offline", "--json")
    assert done.code == 5
    error = done.document["error"]
    assert "float8_e4m3fn" in error["message"] + str(error["details"])
    assert "bfloat16" in str(error["details"]["legal"])


@pytest.mark.parametrize("how", ["absent", False])
def test_shipped_sampling_defaults_leave_greedy_alone(
    run: Run, llama: Path, tmp_path: Path, how: object
) -> None:
    """temperature and top_p without do_sample, which transformers refuses to save."""
    import shutil

    place = tmp_path / "model"
    shutil.copytree(llama, place)
    shipped = {"temperature": 0.9, "top_p": 0.6, **({} if how == "absent" else {"do_sample": how})}
    text = json.dumps(shipped, indent=3) + "\n\n"
    (place / "generation_config.json").write_text(text)
    assert key(run, str(place), *SMALL) == key(run, str(llama), *SMALL)
    assert (place / "generation_config.json").read_text() == text
    checkpoint = json.loads(text)
    sampling = resolve_sampling(command_line={}, request={}, generation_config=checkpoint)
    assert sampling.params.temperature == 0


@pytest.mark.parametrize(
    "table",
    [
        '[draft]\nref = "org/draft"\n',
        '[adapters.one]\nref = "org/a"\n',
    ],
)
def test_a_recipe_table_that_would_be_ignored_is_refused(
    run: Run, llama: Path, tmp_path: Path, table: str
) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f'schema = 1\n[model]\nref = "{llama}"\n{table}')
    done = run("build", str(recipe), "--dry-run")
    assert done.code == 5, done.err
    assert table.split("]")[0].lstrip("[").split(".")[0] in done.err


def test_a_matrix_is_for_prewarm_and_its_points_for_build(
    run: Run, llama: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "grid.toml"
    plain = f'schema = 1\n[model]\nref = "{llama}"\n[config]\nseq_len = 64\n'
    recipe.write_text(plain + '[matrix]\n"config.batch_size" = [1, 2]\n')
    (tmp_path / "plain.toml").write_text(plain)
    refused = run("build", str(recipe), "--dry-run", "--json")
    assert refused.code == 5
    error = refused.document["error"]
    assert "[matrix] of 2 programs" in error["message"]
    assert f"neuroncompile prewarm {recipe}" in error["hint"]
    assert error["details"]["legal"] == [f"{recipe}[batch_size=1]", f"{recipe}[batch_size=2]"]
    named = key(run, f"{recipe}[batch_size=2]")
    assert named == key(run, str(tmp_path / "plain.toml"), "--batch-size=2")
    assert named != key(run, f"{recipe}[batch_size=1]")


@pytest.mark.parametrize(
    ("options", "submodels"),
    [
        (
            (
                *("is_prefix_caching=true", "is_block_kv_layout=true"),
                *("context_encoding_buckets=null", "token_generation_buckets=null"),
            ),
            set(),  # NxDI pairs lengths with prefixes itself
        ),
        (
            ("enable_fused_speculation=true", "speculation_length=5"),
            {"context_encoding_model", "fused_speculation_model"},
        ),
    ],
)
def test_dry_runs_of_other_neuron_modes(
    run: Run, options: tuple[str, ...], submodels: set[str]
) -> None:
    sets = [f"--set={option}" for option in options]
    done = run("build", "llama-3.3-70b-trn2", "--dry-run", "--json", *sets)
    assert done.code == 0, done.out
    assert {graph["submodel"] for graph in done.document["result"]["graphs"]} == submodels


def test_a_toolchain_in_the_environment_for_another_backend_does_not_stand_in_the_way(
    run: Run, llama: Path
) -> None:
    done = run("build", str(llama), *SMALL, "--dry-run", NEURONCOMPILE_TOOLCHAIN="sdk-2.28")
    assert done.code == 0, done.err
    assert "this interpreter" in done.out
