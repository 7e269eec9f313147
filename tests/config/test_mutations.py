"""No mistake in one field goes unnoticed: it is refused by name, or it changes the key."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from neuroncompile.config import NeuronConfig, Toolchain, check_config, resolve_config
from neuroncompile.config.releases import sdk_packages
from neuroncompile.config.schema import CLASSES, LEGAL, Row, fields_of
from neuroncompile.errors import ConfigError
from neuroncompile.hardware.targets import parse_target
from neuroncompile.keys import compile_spec, spec_key
from neuroncompile.keys.exclusions import NEURON_EXCLUSIONS
from tests.config.conftest import recipe_of

HEADS = {
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "dtype": "bfloat16",
}
QKV = {"fused_qkv": True, "qkv_kernel_enabled": True, "qkv_nki_kernel_enabled": True}
GREEDY: dict[str, Any] = {"do_sample": False}

# (model_type, target, SDK, config): each valid, together every feature of the schema's tables
BASES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "plain on cpu": ("llama", "cpu:x86-64-v3", "", {"seq_len": 2048}),
    "plain on trn1": ("llama", "trn1", "2.28", {"tp_degree": 8, "batch_size": 4, "seq_len": 4096}),
    "buckets and kernels on trn2": (
        "llama",
        "trn2",
        "2.29",
        {
            "tp_degree": 32,
            "seq_len": 8192,
            "context_encoding_buckets": [512, 2048, 8192],
            "token_generation_buckets": [2048, 8192],
            "sequence_parallel_enabled": True,
            "attn_block_tkg_nki_kernel_enabled": True,
            "attn_block_tkg_nki_kernel_cache_update": True,
            "mlp_kernel_enabled": True,
            "out_proj_kernel_enabled": True,
            "qkv_cte_nki_kernel_fuse_rope": True,
            "on_device_sampling_config": {"do_sample": True, "dynamic": True, "top_k": 50},
            **QKV,
        },
    ),
    "continuous batches in parts on trn2": (
        "qwen2",
        "trn2.48xlarge",
        "2.29",
        {
            "tp_degree": 32,
            "cp_degree": 4,
            "attention_dp_degree": 4,
            "batch_size": 8,
            "seq_len": 4096,
            "strided_context_parallel_kernel_enabled": True,
            "token_generation_batches": [2, 4],
        },
    ),
    "prefixes in blocks": (
        "llama",
        "trn2",
        "2.29",
        {
            "tp_degree": 8,
            "batch_size": 4,
            "seq_len": 4096,
            "is_prefix_caching": True,
            "is_block_kv_layout": True,
            "pa_block_size": 32,
            "pa_num_blocks": 512,
            "context_encoding_buckets": [512, 4096],
            "prefix_buckets": [512, 2048],
        },
    ),
    "EAGLE": (
        "llama",
        "trn2",
        "2.29",
        {
            "tp_degree": 8,
            "seq_len": 4096,
            "speculation_length": 5,
            "enable_fused_speculation": True,
            "enable_eagle_speculation": True,
            "token_tree_config": {"0": [1, 2], "1": [3, 4]},
            "on_device_sampling_config": GREEDY,
            "fused_spec_config": {"draft_config": {"neuron_config": {"is_eagle_draft": True}}},
        },
    ),
    "Medusa": (
        "llama",
        "trn2",
        "2.28",
        {
            "tp_degree": 8,
            "is_medusa": True,
            "num_medusa_heads": 2,
            "medusa_tree": [[0], [0, 0], [1]],
            "medusa_speculation_length": 4,
            "on_device_sampling_config": GREEDY,
        },
    ),
    "adapters on trn1": (
        "llama",
        "trn1.32xlarge",
        "2.28",
        {
            "tp_degree": 8,
            "lora_config": {
                "max_loras": 2,
                "max_lora_rank": 16,
                "lora_ckpt_paths": ["a:/adapters/a", "b:/adapters/b"],
                "target_modules": ["q_proj", "v_proj"],
            },
        },
    ),
    "quantised on trn2": (
        "llama",
        "trn2",
        "2.28",
        {
            "tp_degree": 8,
            "quantized": True,
            "quantized_checkpoints_path": "/weights/int8",
            "quantization_type": "per_channel_symmetric",
            "quantization_dtype": "f8e4m3",
            "modules_to_not_convert": ["lm_head"],
            "kv_cache_quant": True,
            "kv_quant_config": {"direct_cast": True},
        },
    ),
    "experts": (
        "qwen3_moe",
        "trn2",
        "2.29",
        {
            "tp_degree": 32,
            "moe_tp_degree": 8,
            "moe_ep_degree": 4,
            "batch_size": 16,
            "blockwise_matmul_config": {"block_size": 256, "skip_dma_token": True},
            "router_config": {"act_fn": "softmax"},
            "on_device_sampling_config": {"do_sample": True},
        },
    ),
    "experts, sharded twice": (
        "gpt_oss",
        "trn2",
        "2.29",
        {
            "tp_degree": 32,
            "hybrid_sharding_config": {
                "moe_cte_tp_degree": 8,
                "moe_cte_ep_degree": 4,
                "moe_tkg_tp_degree": 32,
                "moe_tkg_ep_degree": 1,
            },
        },
    ),
    "text and image": (
        "llama4",
        "trn2",
        "2.28",
        {
            "tp_degree": 8,
            "text_neuron_config": {"fused_qkv": True},
            "vision_neuron_config": {"tp_degree": 8, "batch_size": 1, "fused_qkv": True},
        },
    ),
    "captured": (
        "llama",
        "trn2",
        "2.29",
        {
            "tp_degree": 8,
            "output_logits": True,
            "on_device_sampling_config": GREEDY,
            "tensor_capture_config": {"modules_to_capture": ["layers.0"]},
        },
    ),
}


def model_of(family: str) -> dict[str, Any]:
    experts = {"num_experts": 128} if family in ("qwen3_moe", "gpt_oss", "llama4") else {}
    return {"model_type": family, **HEADS, **experts}


def effective(base: str, config: Mapping[str, Any]) -> tuple[NeuronConfig, dict[str, Any]]:
    family, target, _, _ = BASES[base]
    model = model_of(family)
    resolved = resolve_config(
        model=model,
        model_dtype="bfloat16",
        target=parse_target(target),
        recipe=recipe_of(dict(config)),
    )
    return resolved, model


def key_of(base: str, config: Mapping[str, Any]) -> str:
    """The key, having checked the config as a build does.

    Raises:
        ConfigError: refused.
    """
    resolved, model = effective(base, config)
    sdk = BASES[base][2]
    toolchain = Toolchain(f"sdk-{sdk}", "nxdi", sdk_packages(sdk)) if sdk else None
    if toolchain is not None:
        check_config(resolved, model=model, toolchain=toolchain, allow_head_padding=True)
    else:
        check_config(resolved, model=model, allow_head_padding=True)
    return spec_key(
        compile_spec(
            backend="nxdi" if sdk else "cpu",
            model=model,
            neuron=resolved.plain(),
            compiler={"args": [], "env": {}},
            optlevel=None,
            target=resolved.target.spec(),
            toolchain=toolchain.spec() if toolchain else {},
            fused_speculation=bool(resolved.get("enable_fused_speculation")),
        )
    )


def outcome(base: str, config: Mapping[str, Any]) -> tuple[ConfigError | None, str]:
    try:
        return None, key_of(base, config)
    except ConfigError as error:
        return error, ""


@pytest.mark.parametrize("base", BASES)
def test_the_bases_are_valid(base: str) -> None:
    assert len(key_of(base, BASES[base][3])) == 64


def leaves(rows: Mapping[str, Row], prefix: tuple[str, ...] = ()) -> Iterator[tuple[Any, Row]]:
    """(path, row) of every keyword that a value can be put to."""
    for name, row in rows.items():
        path = (*prefix, name)
        if row[1] in CLASSES:
            yield from leaves({inner[0]: inner for inner in CLASSES[row[1]]}, path)
        else:
            yield path, row


def values(row: Row, chance: random.Random) -> list[Any]:
    """Values of the keyword's type and around it, right and wrong."""
    name, kinds, default, _ = row
    whole = [0, 1, 2, 3, 7, 8, 16, 64, 100, 4096, 200_000, -1, chance.randrange(1, 300)]
    pool: dict[str, list[Any]] = {
        "bool": [True, False],
        "int": whole,
        "float": [0.0, 0.5, 1.0, 2.0, -1.0, 1e9],
        "str": [*LEGAL.get(name, ()), "x"],
        "dtype": ["float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"],
        "ints": [[128], [128, 512], [128, 128], [], [0], [1 << 20]],
        "buckets": [[128], [512, 4096], [128, 128], [[128, 4]], [1 << 20]],
        "strs": [["q_proj"], ["q_proj", "k_proj"], []],
        "list": [[], [[0]], [1, 2]],
        "dict": [{"0": [1]}, {"a": 1}, {"1": [2]}, {}],
    }
    wrong: list[Any] = ["4", 1.5, "true", {"a": 1}, [1], "nonsense", None]
    kind = chance.choice(kinds.split("|"))
    right = [value for value in pool[kind] if value != default]
    return right if chance.random() < 0.8 else wrong


def mutations(count: int, seed: int) -> list[tuple[str, tuple[str, ...], Any]]:
    """`count` different (base, path, value), each another value than the base has."""
    chance = random.Random(seed)
    found: list[tuple[str, tuple[str, ...], Any]] = []
    seen = set()
    while len(found) < count:
        base = chance.choice(list(BASES))
        family, _, _, config = BASES[base]
        everything = list(leaves(fields_of(family)))
        said = [entry for entry in everything if reach(config, entry[0]) is not None]
        path, row = chance.choice(said if chance.random() < 0.4 and said else everything)
        value = chance.choice(values(row, chance))
        resolved = effective(base, config)[0].plain()
        if reach(resolved, path) == value or (base, path, repr(value)) in seen:
            continue
        seen.add((base, path, repr(value)))
        found.append((base, path, value))
    return found


def reach(tree: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    node: Any = tree
    for name in path:
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def put(tree: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    changed = dict(tree)
    inner = changed.get(path[0])
    changed[path[0]] = (
        put(inner if isinstance(inner, Mapping) else {}, path[1:], value) if path[1:] else value
    )
    return changed


MUTATIONS = mutations(400, seed=20261201)


@pytest.mark.parametrize(("base", "path", "value"), MUTATIONS, ids=lambda part: str(part)[:60])
def test_a_changed_field_is_refused_by_name_or_changes_the_key(
    base: str, path: tuple[str, ...], value: Any
) -> None:
    config = BASES[base][3]
    error, key = outcome(base, put(config, path, value))
    if error is not None:
        assert path[-1] in f"{error.field} {error}"
        assert error.field
        assert error.hint
        assert error.legal is not None
        return
    if key != key_of(base, config):
        return
    if value is None and reach(config, path) is None:
        return  # unset, as it was
    exclusion = next((NEURON_EXCLUSIONS[name] for name in path if name in NEURON_EXCLUSIONS), None)
    assert exclusion is not None, "nothing says that it was ignored"
    assert exclusion.reason
    assert exclusion.proof


def test_the_mutations_reach_every_outcome() -> None:
    """They would prove nothing if all of them were refused for their type."""
    outcomes = [outcome(base, put(BASES[base][3], path, to)) for base, path, to in MUTATIONS]
    refused = sum(error is not None for error, _ in outcomes)
    assert refused >= 100
    assert len(outcomes) - refused >= 100
