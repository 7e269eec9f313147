"""Drafts, adapters and classes of the user's own: pinned, checked, and in the key."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import ConfigError
from tests.conftest import SMALL, Done, Run

TRN2 = ("--target=trn2", "--toolchain=sdk-2.28", "--dry-run", "--json", *SMALL)
FUSED = (
    "--set=enable_fused_speculation=true",
    "--set=speculation_length=5",
    "--set=on_device_sampling_config.top_k=1",
)


def planned(run: Run, *args: str) -> Done:
    return run("build", *TRN2, *args)


def key(run: Run, *args: str) -> str:
    done = planned(run, *args)
    assert done.code == 0, done.out
    found: str = done.document["result"]["key"]
    return found


def refused(done: Done, code: int = 5) -> dict[str, Any]:
    assert done.code == code, done.out
    error: dict[str, Any] = done.document["error"]
    assert error["hint"]
    return error


@pytest.fixture
def copy(llama: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the small model with other config values."""

    def make(name: str, **config: Any) -> Path:
        place = tmp_path / name
        shutil.copytree(llama, place)
        document = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps(document | config))
        return place

    return make


def rename_tokens(model: Path) -> None:
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    one, two = list(vocabulary)[40:42]
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))


# drafts


def test_a_drafts_config_is_in_the_key_and_its_place_is_not(
    run: Run, llama: Path, copy: Callable[..., Path]
) -> None:
    alone = key(run, str(llama), *FUSED)
    same, moved = copy("same"), copy("moved", _name_or_path="/elsewhere")
    wider = copy("wider", intermediate_size=128)
    first = key(run, str(llama), *FUSED, f"--draft-model={same}")
    assert first != alone
    assert key(run, str(llama), *FUSED, f"--draft-model={moved}") == first
    assert key(run, str(llama), *FUSED, f"--draft-model={wider}") != first
    # the target as its own draft is that same program
    assert key(run, str(llama), *FUSED, "--draft-model=self") == first
    assert key(run, str(llama), *FUSED, f"--draft-model={llama}") == first


def test_a_drafts_neuron_config_is_derived_and_in_the_key(
    run: Run, llama: Path, tmp_path: Path
) -> None:
    def recipe(name: str, more: str = "") -> str:
        path = tmp_path / f"{name}.toml"
        path.write_text(
            f'schema = 1\n[model]\nref = "{llama}"\n'
            "[config]\nenable_fused_speculation = true\nspeculation_length = 5\n"
            "on_device_sampling_config = {top_k = 1}\n"
            f'[draft]\nref = "self"\n{more}'
        )
        return key(run, str(path))

    plain = recipe("plain")
    assert plain == key(run, str(llama), *FUSED, "--draft-model=self")
    assert recipe("said", "[draft.config]\nspeculation_length = 0\n") == plain
    assert recipe("own", "[draft.config]\nfused_qkv = true\n") != plain


@pytest.mark.parametrize("field", ["pad_token_id"])
def test_padding_is_in_the_graph_under_fused_speculation(
    run: Run, copy: Callable[..., Path], field: str
) -> None:
    one, two = copy("one", **{field: 0}), copy("two", **{field: 2})
    assert key(run, str(one)) == key(run, str(two))
    assert key(run, str(one), *FUSED) != key(run, str(two), *FUSED)
    # of the draft, too
    fused = [f"--draft-model={two}", *FUSED]
    assert key(run, str(one), *fused) != key(run, str(one), f"--draft-model={one}", *FUSED)


def test_a_padded_vocabulary_is_the_same_tokenizer(
    run: Run, llama: Path, copy: Callable[..., Path]
) -> None:
    padded = copy("padded", vocab_size=384)
    done = planned(run, str(llama), *FUSED, f"--draft-model={padded}")
    assert done.code == 0, done.out


def test_another_tokenizer_is_refused_with_the_token(
    run: Run, llama: Path, copy: Callable[..., Path]
) -> None:
    other = copy("other")
    rename_tokens(other)
    error = refused(planned(run, str(llama), *FUSED, f"--draft-model={other}"), code=4)
    assert "another tokenizer" in error["message"]
    assert error["details"]["target"] != error["details"]["draft"]


def test_a_draft_without_a_row_for_a_token_is_refused(
    run: Run, llama: Path, copy: Callable[..., Path]
) -> None:
    short = copy("short", vocab_size=200)
    error = refused(planned(run, str(llama), *FUSED, f"--draft-model={short}"), code=4)
    assert (error["details"]["token"], error["details"]["vocab_size"]) == (272, 200)


@pytest.mark.parametrize(
    ("sets", "field"),
    [
        ((), "speculation_length"),
        (("--set=speculation_length=5",), "enable_fused_speculation"),
    ],
)
def test_a_draft_needs_speculation(
    run: Run, llama: Path, sets: tuple[str, ...], field: str
) -> None:
    error = refused(planned(run, str(llama), "--draft-model=self", *sets))
    assert error["details"]["field"] == field
    assert field in error["hint"]


def test_a_missing_draft_says_so(run: Run, llama: Path) -> None:
    error = refused(planned(run, str(llama), *FUSED, "--draft-model=./no/draft"), code=4)
    assert "./no/draft" in error["message"]


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("--draft-model=self", "draft"),
        ("--adapter=a=org/a", "adapters"),
        ("--model-class=x.py:X", "model.class"),
    ],
)
def test_cpu_refuses_companions_by_name(run: Run, llama: Path, option: str, field: str) -> None:
    error = refused(run("build", str(llama), *SMALL, option, "--dry-run", "--json"))
    assert error["details"]["field"] == field
    assert "cpu" in error["message"]
    assert "--target" in error["hint"]


def test_a_dry_run_shows_what_goes_along(
    run: Run, llama: Path, adapter: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(SOURCE)
    along = ("--draft-model=self", *FUSED, adapter("one"), f"--model-class={file}:NeuronMine")
    result = planned(run, str(llama), *along).document["result"]
    assert result["draft"]["model"] == result["model"]
    assert result["adapters"]["one"]["rank"] == 8
    assert result["class"]["class"] == "NeuronMine"
    text = run("build", str(llama), *(o for o in TRN2 if o != "--json"), *along).out
    assert f"draft      {llama}" in text
    assert "adapter    one: " in text
    assert f"class      NeuronMine of {file}" in text


# adapters


@pytest.fixture
def adapter(tmp_path: Path) -> Callable[..., str]:
    def make(name: str, **config: Any) -> str:
        place = tmp_path / name
        place.mkdir()
        (place / "adapter_model.safetensors").write_bytes(name.encode())
        document = {"peft_type": "LORA", "r": 8, "target_modules": ["q_proj", "v_proj"]}
        (place / "adapter_config.json").write_text(json.dumps(document | config))
        return f"--adapter={name}={place}"

    return make


def test_an_adapters_rank_and_modules_are_in_the_key_its_weights_are_not(
    run: Run, llama: Path, adapter: Callable[..., str]
) -> None:
    model = str(llama)
    base = key(run, model, adapter("one"))
    assert base != key(run, model)
    assert base == key(run, model, adapter("two", lora_alpha=64, base_model_name_or_path="x"))
    assert base != key(run, model, adapter("high", r=16))
    assert base != key(run, model, adapter("pattern", rank_pattern={"q_proj": 32}))
    assert base != key(run, model, adapter("more", target_modules=["q_proj", "o_proj", "v_proj"]))
    assert base == key(run, model, adapter("turned", target_modules=["v_proj", "q_proj"]))
    # what the file says, said by hand
    said = ("max_loras=1", "max_lora_rank=8", 'target_modules=["q_proj","v_proj"]')
    assert base == key(run, model, *(f"--set=lora_config.{text}" for text in said))


def test_several_adapters_need_room_for_the_largest(
    run: Run, llama: Path, adapter: Callable[..., str]
) -> None:
    done = planned(run, str(llama), adapter("one"), adapter("two", r=32, target_modules=["o_proj"]))
    rows = {row["name"]: row for row in done.document["result"]["config"]}
    assert rows["lora_config.max_loras"]["value"] == 2
    assert rows["lora_config.max_lora_rank"]["value"] == 32
    assert rows["lora_config.target_modules"]["value"] == ["o_proj", "q_proj", "v_proj"]
    assert rows["lora_config.max_lora_rank"]["origin"] == "flag --adapter"


@pytest.mark.parametrize(
    ("setting", "config", "words"),
    [
        ("max_lora_rank=8", {"r": 64}, ("8", "64", "one")),
        ("max_loras=0", {}, ("max_loras",)),
        ('target_modules=["q_proj"]', {}, ("v_proj", "one")),
        ("max_lora_rank=16", {"bias": "all"}, ("lora_bias", "one")),
    ],
)
def test_a_config_below_an_adapter_names_both(
    run: Run,
    llama: Path,
    adapter: Callable[..., str],
    setting: str,
    config: dict[str, Any],
    words: tuple[str, ...],
) -> None:
    done = planned(run, str(llama), adapter("one", **config), f"--set=lora_config.{setting}")
    error = refused(done)
    assert all(word in error["message"] for word in words), error["message"]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"peft_type": "LOHA"}, "peft_type"),
        ({"use_dora": True}, "use_dora"),
        ({"modules_to_save": ["embed_tokens"]}, "modules_to_save"),
        ({"target_modules": "all-linear"}, "target_modules"),
        ({"r": 0}, "of the adapter"),
    ],
)
def test_an_adapter_that_would_be_misread_is_refused(
    run: Run, llama: Path, adapter: Callable[..., str], config: dict[str, Any], field: str
) -> None:
    error = refused(planned(run, str(llama), adapter("one", **config)), code=4)
    assert field in error["message"]


def test_a_recipe_names_adapters_and_a_flag_replaces_one(
    run: Run, llama: Path, tmp_path: Path, adapter: Callable[..., str]
) -> None:
    small, large = adapter("small"), adapter("large", r=32)
    place = small.rpartition("=")[2]
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f'schema = 1\n[model]\nref = "{llama}"\n[adapters.german]\nref = "{place}"\n')
    assert key(run, str(recipe)) == key(run, str(llama), small)
    large = large.replace("--adapter=large", "--adapter=german")
    assert key(run, str(recipe), large) == key(run, str(llama), large)


def test_an_adapter_flag_without_a_name_is_refused(run: Run, llama: Path) -> None:
    error = refused(planned(run, str(llama), "--adapter=org/adapter"))
    assert "NAME=REF" in str(error["details"]["legal"])


# a class of the user's own

SOURCE = "import torch_neuronx\nraise SystemExit('imported')\nclass NeuronMine:\n    pass\n"


def test_a_class_of_ones_own_is_in_the_key_by_its_source(
    run: Run, llama: Path, tmp_path: Path
) -> None:
    def digested(name: str, text: str) -> str:
        file = tmp_path / name / "mine.py"
        file.parent.mkdir()
        file.write_text(text)
        return key(run, str(llama), f"--model-class={file}:NeuronMine")

    base = digested("one", SOURCE)
    assert base != key(run, str(llama))
    assert base == digested("two", SOURCE)  # the place is not in the key
    assert base != digested("three", SOURCE + "# edited\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mine.py", "names no class"),
        ("./absent.py:X", "no such file"),
        ("no_such_module_anywhere:X", "no module"),
        ("{file}:NeuronMin", "NeuronMine"),
        ("{broken}:X", "not Python"),
    ],
)
def test_a_class_that_is_not_there_is_named(
    run: Run, llama: Path, tmp_path: Path, text: str, words: str
) -> None:
    file, broken = tmp_path / "mine.py", tmp_path / "broken.py"
    file.write_text(SOURCE)
    broken.write_text("class X(:\n")
    done = planned(run, str(llama), f"--model-class={text.format(file=file, broken=broken)}")
    error = refused(done)
    assert error["details"]["field"] == "model.class"
    assert words in f"{error['message']} {error['hint']}"


def test_an_unlisted_family_plans_with_a_class_of_ones_own(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(SOURCE)
    gpt2 = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
    }
    keys = []
    for name, config in (
        ("aliases", gpt2),
        ("usual", {**gpt2, "n_embd": None, "hidden_size": 768}),
        ("deeper", {**gpt2, "n_layer": 24}),
    ):
        recipe = tmp_path / f"{name}.toml"
        facts = "\n".join(f"{k} = {json.dumps(v)}" for k, v in config.items() if v is not None)
        recipe.write_text(
            f'schema = 1\n[model]\nref = "org/absent"\nclass = "mine.py:NeuronMine"\n'
            f"[model.facts]\n{facts}\n"
        )
        keys.append(key(run, str(recipe), "--offline"))
        too_long = planned(run, str(recipe), "--offline", "--seq-len=1025")
        assert "1024" in refused(too_long)["message"]
    assert keys[0] == keys[1] != keys[2]


def test_only_a_recipe_given_as_a_path_may_name_a_class(
    run: Run, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.py").write_text(SOURCE)
    (tmp_path / "recipes" / "theirs.toml").write_text(
        f'schema = 1\n[model]\nref = "{llama}"\nclass = "mine.py:NeuronMine"\n'
    )
    monkeypatch.chdir(tmp_path)
    error = refused(planned(run, "theirs"))
    assert error["details"]["field"] == "model.class"
    assert "theirs.toml" in error["hint"]
    direct = key(run, str(llama), f"--model-class={tmp_path}/recipes/mine.py:NeuronMine")
    assert key(run, "recipes/theirs.toml") == direct


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"draft": "self"}, "draft"),
        ({"adapters": {"german": "org/adapter"}}, "adapters"),
        ({"model_class": "./mine.py:Mine"}, "model.class"),
        ({"locked": True}, "lock"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_python_takes_what_the_command_line_takes(
    more: dict[str, Any], field: str, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cpu target refuses each by name, so each has arrived."""
    import neuroncompile

    monkeypatch.chdir(tmp_path)
    for call in (neuroncompile.build, neuroncompile.load):
        with pytest.raises(ConfigError) as caught:
            call(str(llama), store=str(tmp_path / "store"), **more)
        assert caught.value.field == field
