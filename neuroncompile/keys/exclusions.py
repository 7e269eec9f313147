"""What never enters a key, each with its reason and its proof.

Everything else does, unknown fields included: a field nobody has thought about can only cause
a compile too many, never a wrong program. A field may stand here when it cannot reach a graph,
the compiler's flags or the set of files; `proof` says how that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "MODEL_EXCLUSIONS",
    "NEURON_EXCLUSIONS",
    "SHARD_EXCLUSIONS",
    "SIZES",
    "Exclusion",
    "without",
]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Why a field is left out.

    Attributes:
        reason: what the field does instead.
        proof: how it is known that no program depends on it.
        unless: a condition under which it does enter: "fused_speculation" or "".
    """

    reason: str
    proof: str
    unless: str = ""


_HOST = "names a place or a release, not a number; two hosts, one key (test)"
_RUNTIME = "read by the decoding loop on the host; equal graphs (test)"
_TRAINING = "acts in training only; equal graphs in evaluation mode (test)"
_GENERATION = "a generation default of old checkpoints; read by the decoding loop (test)"


MODEL_EXCLUSIONS: dict[str, Exclusion] = {
    "_name_or_path": Exclusion("where the checkpoint lay when it was saved", _HOST),
    "_commit_hash": Exclusion("revision of the checkpoint; weights are not in the key", _HOST),
    "transformers_version": Exclusion("release that wrote the file", _HOST),
    "auto_map": Exclusion("remote code that is never run", _HOST),
    "dtype": Exclusion("the checkpoint's; the program's is neuron.torch_dtype", "equal key (test)"),
    "bos_token_id": Exclusion("starts a sequence on the host", _RUNTIME),
    "eos_token_id": Exclusion("ends a sequence on the host", _RUNTIME),
    "sep_token_id": Exclusion("used by tokenizers", _RUNTIME),
    "decoder_start_token_id": Exclusion("starts a sequence on the host", _RUNTIME),
    "pad_token_id": Exclusion(
        "padding rows and columns are masked",
        _RUNTIME,
        unless="fused_speculation",  # there it is a constant of the graph
    ),
    "use_cache": Exclusion("these programs always keep a cache", _RUNTIME),
    "output_attentions": Exclusion("asks the framework for extra outputs", _RUNTIME),
    "output_hidden_states": Exclusion("asks the framework for extra outputs", _RUNTIME),
    "return_dict": Exclusion("shape of the framework's return value", _RUNTIME),
    "use_return_dict": Exclusion("shape of the framework's return value", _RUNTIME),
    "attention_dropout": Exclusion("dropout", _TRAINING),
    "hidden_dropout": Exclusion("dropout", _TRAINING),
    "embd_pdrop": Exclusion("dropout", _TRAINING),
    "attn_pdrop": Exclusion("dropout", _TRAINING),
    "resid_pdrop": Exclusion("dropout", _TRAINING),
    "resid_dropout": Exclusion("dropout", _TRAINING),
    "initializer_range": Exclusion("spread of random weights", _TRAINING),
    "gradient_checkpointing": Exclusion("memory of the backward pass", _TRAINING),
    "pretraining_tp": Exclusion("how training was split", _TRAINING),
    "router_aux_loss_coef": Exclusion("weight of a training loss", _TRAINING),
    "output_router_logits": Exclusion("asks for a training loss", _TRAINING),
    "id2label": Exclusion("names of classes", "classifier heads are not compiled"),
    "label2id": Exclusion("names of classes", "classifier heads are not compiled"),
    "problem_type": Exclusion("loss of a classifier", "classifier heads are not compiled"),
    "finetuning_task": Exclusion("a note about the checkpoint", _HOST),
    "task_specific_params": Exclusion("generation defaults by task", _GENERATION),
    **{
        name: Exclusion("sampling default", _GENERATION)
        for name in (
            "do_sample",
            "temperature",
            "top_k",
            "top_p",
            "typical_p",
            "num_beams",
            "num_beam_groups",
            "num_return_sequences",
            "repetition_penalty",
            "length_penalty",
            "no_repeat_ngram_size",
            "max_length",
            "min_length",
            "early_stopping",
            "bad_words_ids",
            "forced_bos_token_id",
            "forced_eos_token_id",
            "suppress_tokens",
            "begin_suppress_tokens",
            "exponential_decay_length_penalty",
            "remove_invalid_values",
            "diversity_penalty",
            "encoder_no_repeat_ngram_size",
            "return_dict_in_generate",
            "output_scores",
        )
    },
}
"""Fields of a normalised Hugging Face config that never reach a program."""


_AFTER_LOAD = "read by the loader or the decoding loop after the program exists"
_PLACE = "a path of one host; the digest of what lies there is in the shard key"
# NxDI raises these three from the adapters it finds (modules/lora_serving/config.py). A program
# built with other values than asked for is refused, so the fields alone decide.
_ADAPTER = "a path of one host; max_loras, max_lora_rank and target_modules are in the key"

NEURON_EXCLUSIONS: dict[str, Exclusion] = {
    "skip_warmup": Exclusion("whether loading runs each graph once", _AFTER_LOAD),
    "allow_input_truncation": Exclusion("what the host does with a long prompt", _AFTER_LOAD),
    "max_new_tokens": Exclusion("default length of an answer", _AFTER_LOAD),
    "async_mode": Exclusion("whether the host waits for each step", _AFTER_LOAD),
    "quantized_checkpoints_path": Exclusion("where quantised weights lie", _PLACE),
    "draft_model_path": Exclusion("where the draft lies", _PLACE),
    "lora_ckpt_paths": Exclusion("where adapters lie", _ADAPTER),
    "lora_ckpt_paths_cpu": Exclusion("where adapters lie", _ADAPTER),
    "lora_ckpt_json": Exclusion("a file that lists where adapters lie", _ADAPTER),
    "base_compile_work_dir": Exclusion("where compilers work", _PLACE),
}
"""NxDI keywords that act after the program exists, at any depth of the config."""

_LENGTHS = "sizes graphs and the cache; weights have neither rows nor lengths"
_CHOOSING = "chooses a token or a graph; no weight is cut by it"
_CUT = "NxDI 0.9's sharding reads it nowhere (model_builder.py shard_checkpoint, checkpoint hooks)"

SIZES: dict[str, Exclusion] = {
    name: Exclusion(_LENGTHS, _CUT)
    for name in (
        "batch_size",
        "ctx_batch_size",
        "tkg_batch_size",
        "max_batch_size",
        "spec_batch_size",
        "seq_len",
        "max_context_length",
        "max_length",
        "n_positions",
        "buckets",
        "context_encoding_buckets",
        "token_generation_buckets",
        "token_generation_batches",
        "prefix_buckets",
    )
}
"""NxDI keywords in which the programs of one family differ."""

SHARD_EXCLUSIONS: dict[str, Exclusion] = {
    **SIZES,
    **{
        name: Exclusion(_CHOOSING, _CUT)
        for name in (
            "enable_bucketing",
            "is_continuous_batching",
            "on_device_sampling_config",
            "output_logits",
            "padding_side",
            "save_sharded_checkpoint",
            "skip_sharding",
        )
    },
}
"""NxDI keywords that no sharded weight depends on, besides those of `NEURON_EXCLUSIONS`."""


def without(
    config: Mapping[str, Any],
    table: Mapping[str, Exclusion],
    *,
    nested: bool = False,
    fused_speculation: bool = False,
) -> dict[str, Any]:
    """`config` less what `table` excludes.

    Args:
        nested: in nested mappings too. Right for NxDI keywords, whose names mean one thing at
            any depth; wrong for a model's config, where an inner `top_k` may be a router's.
    """
    kept: dict[str, Any] = {}
    for name, value in config.items():
        exclusion = table.get(name)
        if exclusion is not None and not (
            fused_speculation and exclusion.unless == "fused_speculation"
        ):
            continue
        if nested and isinstance(value, Mapping):
            value = without(value, table, nested=True, fused_speculation=fused_speculation)
        kept[name] = value
    return kept
