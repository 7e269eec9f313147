"""Sampling on the device, LoRA adapters, capturing and replacing tensors.

From NxDI 0.9.0: modules/generation/sampling.py, modules/lora_serving/config.py, models/config.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from neuroncompile.config.rule import Case, Rule

__all__ = ["RULES"]

SAMPLING = "on_device_sampling_config"


def sampling(case: Case) -> list[str]:
    """Values that a compiled sampler refuses or reads as something else."""
    if not case.on(SAMPLING):
        return []
    top_k, widest = case.get(f"{SAMPLING}.top_k"), case.get(f"{SAMPLING}.global_topk")
    if 0 < widest < top_k:
        raise case.refusal(
            f"{SAMPLING}.top_k",
            f"candidates are cut to global_topk, {widest}, first",
            f"-1 to {widest}",
            f"lower top_k or raise {SAMPLING}.global_topk",
        )
    vocabulary = case.model.get("vocab_size")
    if isinstance(vocabulary, int) and widest > vocabulary:
        raise case.refusal(
            f"{SAMPLING}.global_topk",
            f"the vocabulary has {vocabulary} tokens",
            f"1 to {vocabulary}",
            f"set {SAMPLING}.global_topk to {vocabulary} or less",
        )
    top_p = case.get(f"{SAMPLING}.top_p")
    if not 0 < top_p <= 1:
        raise case.refusal(
            f"{SAMPLING}.top_p",
            "it is a probability above 0",
            "above 0, up to 1",
            "use 1.0 for all",
        )
    return _greedy(case)


def _greedy(case: Case) -> list[str]:
    warnings = []
    neutral = {"top_k": 1, "top_p": 1.0, "temperature": 1.0}
    ignored = [
        name for name, value in neutral.items() if case.config[SAMPLING].get(name, value) != value
    ]
    draws = case.get(f"{SAMPLING}.do_sample") or case.get(f"{SAMPLING}.dynamic")
    if ignored and not draws:
        warnings.append(
            f"{SAMPLING} has neither do_sample nor dynamic: the graph takes the best token, and "
            f"{', '.join(ignored)} have no effect"
        )
    if case.get(f"{SAMPLING}.deterministic"):
        warnings.append(
            f"{SAMPLING}.deterministic replaces every random draw by 0.5: all requests get the "
            "same tokens"
        )
    return warnings


def sampling_data_parallel(case: Case) -> list[str]:
    """Where the batch does not split, NxDI falls back to plain sampling with a log line."""
    field = f"{SAMPLING}.sampling_dp_degree"
    degree, batch = case.get(field), case.get("batch_size")
    if degree is None or degree == 1 or (batch >= degree and batch % degree == 0):
        return []
    raise case.refusal(
        field,
        f"it does not divide batch_size {batch}, and NxD Inference would sample without it",
        f"a divisor of {batch}",
        "choose a divisor of batch_size, or leave sampling_dp_degree out",
    )


def lora_paths(case: Case) -> list[str]:
    """NxDI raises max_loras to the number of adapters it finds, in silence."""
    if not case.on("lora_config"):
        return []
    paths = case.get("lora_config.lora_ckpt_paths") or ()
    names = list(paths) if isinstance(paths, Mapping) else [_adapter(text) for text in paths]
    for index, name in enumerate(names):
        if name is None:
            raise case.refusal(
                "lora_config.lora_ckpt_paths",
                f"{paths[index]!r} is not NAME:PATH",
                'a table, or a list of "name:path"',
                'write "name:path"',
            )
        if name in names[:index]:
            raise case.refusal(
                "lora_config.lora_ckpt_paths",
                f"adapter {name!r} stands twice",
                "each name once",
                "rename one of them",
            )
    most = case.get("lora_config.max_loras")
    if len(names) > most:
        raise case.refusal(
            "lora_config.max_loras",
            f"lora_ckpt_paths names {len(names)} adapters, and NxD Inference would raise it",
            f">= {len(names)}",
            f"set lora_config.max_loras to {len(names)}",
        )
    if case.get("lora_config.lora_ckpt_paths_cpu") and not case.get(
        "lora_config.dynamic_multi_lora"
    ):
        raise case.refusal(
            "lora_config.lora_ckpt_paths_cpu",
            "NxD Inference drops it unless dynamic_multi_lora is true",
            "unset, or with dynamic_multi_lora",
            "set lora_config.dynamic_multi_lora=true",
        )
    return []


def lora_settings(case: Case) -> list[str]:
    """Fields that belong to NxDI, or to a mode that is off."""
    if not case.on("lora_config"):
        return []
    if case.get("lora_config.is_context_encoding"):
        raise case.refusal(
            "lora_config.is_context_encoding",
            "NxD Inference sets it for each graph",
            False,
            "leave it out",
        )
    on_host = case.get("lora_config.max_cpu_loras")
    if case.get("lora_config.dynamic_multi_lora") and on_host < case.get("lora_config.max_loras"):
        raise case.refusal(
            "lora_config.max_cpu_loras",
            f"every adapter on the device is kept on the host too, and max_loras is "
            f"{case.get('lora_config.max_loras')}",
            f">= {case.get('lora_config.max_loras')}",
            "raise lora_config.max_cpu_loras",
        )
    warnings = []
    if case.get("lora_config.enable_base_model_only"):
        warnings.append(
            "lora_config.enable_base_model_only adds one to max_loras and max_cpu_loras for the "
            "base model"
        )
    for name, needed, value in (
        ("lfu_decay_period", "eviction_policy", "lfu"),
        ("max_cpu_loras", "dynamic_multi_lora", True),
        ("eviction_policy", "dynamic_multi_lora", True),
    ):
        if name in case.config["lora_config"] and case.get(f"lora_config.{needed}") != value:
            warnings.append(
                f"lora_config.{name} is set, and NxD Inference reads it with {needed} {value} only"
            )
    return warnings


def capture(case: Case) -> list[str]:
    """Captured tensors leave as extra outputs beside the logits."""
    table = "tensor_capture_config"
    if not case.on(table):
        return []
    modules = case.get(f"{table}.modules_to_capture")
    if (
        not modules
        and not case.get(f"{table}.max_intermediate_tensors")
        and not case.get(f"{table}.auto_capture_moe_tensors")
    ):
        raise case.refusal(
            table,
            "it captures nothing",
            "with modules_to_capture, max_intermediate_tensors or auto_capture_moe_tensors",
            f"set {table}.modules_to_capture",
        )
    if case.given("output_logits") and not case.get("output_logits"):
        raise case.refusal(
            "output_logits",
            f"{table} sets it to true",
            True,
            f"set output_logits=true, or leave {table} out",
        )
    if case.get("output_logits"):
        return []
    if not case.on(SAMPLING):
        raise case.refusal(
            table,
            f"without output_logits NxD Inference runs it with {SAMPLING} only",
            f"unset, or with {SAMPLING} or output_logits",
            f"set output_logits=true, or {SAMPLING}.do_sample",
        )
    return [f"{table} sets output_logits to true"]


def replacement(case: Case) -> list[str]:
    """Its four fields have no default."""
    table = "tensor_replacement_config"
    if not case.on(table):
        return []
    wanted = ("ref_dir", "neuron_dir", "tf_map", "neuron_config")
    missing = [name for name in wanted if case.get(f"{table}.{name}") is None]
    if missing:
        given = ", ".join(case.config[table]) or "nothing"
        raise case.refusal(
            table,
            f"it holds {given}, and NxD Inference requires {', '.join(missing)} too",
            f"with {', '.join(wanted)}",
            f"set {table}.{missing[0]}, or leave {table} out",
        )
    return []


def _adapter(text: str) -> str | None:
    name, colon, path = text.partition(":")
    return name.strip() if colon and name.strip() and path.strip() else None


RULES: tuple[Rule, ...] = (
    sampling,
    sampling_data_parallel,
    lora_paths,
    lora_settings,
    capture,
    replacement,
)
