"""What the cpu target refuses, by name, and what it lets through."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from neuroncompile.backends.cpu.checks import check
from neuroncompile.config import resolve_config
from neuroncompile.config.schema import CLASSES
from neuroncompile.errors import ConfigError
from neuroncompile.hardware.targets import parse_target
from neuroncompile.models.architecture import normalise, shape_of

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}
SHAPE = shape_of(CONFIG)


def neuron(**flags: Any) -> dict[str, Any]:
    """Effective keywords as the pipeline resolves them."""
    return resolve_config(
        model=normalise(CONFIG),
        model_dtype="bfloat16",
        target=parse_target("cpu"),
        flags={name: (f"flag {name}", value) for name, value in flags.items()},
    ).plain()


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"batch_size": 4},
        {"seq_len": 256, "max_context_length": 128},
        {"enable_bucketing": False},
        {"context_encoding_buckets": [16, 64], "token_generation_buckets": [32, 512]},
        {"torch_dtype": "float16"},
        {"padding_side": "right", "quantized": False, "speculation_length": 0},
        {"batch_size": 2, "max_batch_size": 2, "kv_cache_batch_size": 2},
    ],
    ids=str,
)
def test_what_the_target_computes_passes(flags: dict[str, Any]) -> None:
    check(neuron(**flags), SHAPE)


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        ({"tp_degree": 2}, "tp_degree"),
        ({"batch_size": 2, "ctx_batch_size": 2}, "ctx_batch_size"),
        ({"batch_size": 4, "tkg_batch_size": 2}, "tkg_batch_size"),
        ({"quantized": True}, "quantized"),
        ({"kv_cache_quant": True}, "kv_cache_quant"),
        ({"speculation_length": 4}, "speculation_length"),
        ({"enable_fused_speculation": True}, "enable_fused_speculation"),
        ({"is_medusa": True}, "is_medusa"),
        ({"lora_config": {"max_loras": 2}}, "lora_config"),
        ({"padding_side": "left"}, "padding_side"),
        ({"is_prefix_caching": True}, "is_prefix_caching"),
        ({"windowed_context_encoding_size": 64}, "windowed_context_encoding_size"),
        ({"on_device_sampling_config": {"do_sample": True}}, "on_device_sampling_config"),
        ({"torch_dtype": "float8_e4m3fn"}, "torch_dtype"),
        ({"attention_dtype": "bfloat16"}, "attention_dtype"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_it_does_not_honour_is_refused_by_name(flags: dict[str, Any], field: str) -> None:
    try:
        effective = neuron(**flags)
    except ConfigError:
        # The schema itself may refuse a value; the target has to as well.
        effective = neuron() | flags
    with pytest.raises(ConfigError) as caught:
        check(effective, SHAPE)
    assert caught.value.field == field
    assert caught.value.value is not None
    assert caught.value.legal
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "buckets"),
    [
        ("context_encoding_buckets", [64, 1024]),
        ("context_encoding_buckets", [0]),
        ("token_generation_buckets", [128, 256]),  # could not decode up to 512
    ],
)
def test_buckets_that_do_not_fit_the_length_are_refused(name: str, buckets: list[int]) -> None:
    with pytest.raises(ConfigError) as caught:
        check(neuron() | {name: buckets}, SHAPE)
    assert caught.value.field == name


def test_every_keyword_of_nxdi_has_a_verdict() -> None:
    """A value unlike any default is refused, unless the keyword is honoured or inert here."""
    from neuroncompile.backends.cpu.checks import DEFAULTS, FOLLOW, HONOURED, INERT

    assert not HONOURED & INERT
    assert not (HONOURED | INERT) & (DEFAULTS.keys() | FOLLOW.keys())
    for name, kind, default, _ in CLASSES["NeuronConfig"]:
        derived = isinstance(default, str) and default.startswith("=")
        if name not in HONOURED | INERT and not derived and kind not in CLASSES:
            # NxDI's own default, spelt out, is never refused …
            check(neuron() | {name: default}, SHAPE)
        if name not in HONOURED | INERT:
            # … and a value that means something always is.
            with pytest.raises(ConfigError) as caught:
                check(neuron() | {name: "something"}, SHAPE)
            assert caught.value.field == name


def test_checking_imports_nothing_heavy() -> None:
    program = (
        "import sys, neuroncompile.backends.cpu.checks, neuroncompile.backends.cpu.program;"
        "import neuroncompile.backends.cpu.identity as i; i.identity();"
        "print(sorted({'torch', 'numpy', 'importlib.metadata'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
