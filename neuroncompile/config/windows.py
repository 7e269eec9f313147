"""Which SDK runs what: known windows and known issues, as one table.

From the release notes of NxD Inference and NxD Core (aws-neuron-sdk, release-notes/), and from the
sources of each release for when a target came; when a family came is in `models.families`. The
SDK is read off the NxDI version, because a toolchain is its packages, whatever it is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from neuroncompile.config.versions import nxdi_version
from neuroncompile.errors import ConfigError
from neuroncompile.hardware.targets import Target

__all__ = ["WINDOWS", "Window", "applies", "check_windows", "sdk_of"]

NXDI_SDK = {
    (0, 1): (2, 21),
    (0, 2): (2, 22),
    (0, 3): (2, 23),
    (0, 4): (2, 24),
    (0, 5): (2, 25),
    (0, 6): (2, 26),
    (0, 7): (2, 27),
    (0, 8): (2, 28),
    (0, 9): (2, 29),
    (0, 10): (2, 30),  # and 2.31
}
"""NxDI (major, minor) → the first SDK that shipped it."""

NEWEST = (99, 0)


Condition = tuple[str, str, Any]
"""(dotted keyword, "<", ">=" or "==", value); it fails where the keyword is not set."""


class Window(NamedTuple):
    """One known limit.

    Attributes:
        since, until: SDKs it holds for, both ends included.
        targets: platforms it holds for; empty for all.
        families: `model_type`s it holds for; empty for all.
        text: what is wrong, in the release notes' sense.
        fix: what to do instead.
        fatal: an error rather than a warning.
        when: what the config must look like, all of it; empty for any config.
    """

    since: tuple[int, int]
    until: tuple[int, int]
    targets: tuple[str, ...]
    families: tuple[str, ...]
    text: str
    fix: str
    fatal: bool = True
    when: tuple[Condition, ...] = ()


WINDOWS = (
    Window(
        (2, 29), NEWEST, ("trn1", "trn1n", "inf2"), (),
        "NxD Inference runs on trn2 and newer only from SDK 2.29 on",
        'pin SDK 2.28 (--toolchain sdk-2.28, or sdk = "2.28" under [toolchain]) or target trn2',
    ),
    Window(
        (2, 21), (2, 26), ("trn3",), (),
        "NxD Inference knows trn3 from SDK 2.27 on",
        'set [toolchain] sdk = "2.27" or newer',
    ),
    Window(
        (2, 28), (2, 28), (), ("qwen3_moe",),
        "Qwen3-MoE needs batch_size 16 or more on SDK 2.28",
        "set batch_size to 16 or more, or use SDK 2.29",
        when=(("batch_size", "<", 16),),
    ),
    Window(
        (2, 28), (2, 28), (), ("qwen3_vl",),
        "Qwen3-VL takes text and image of 32768 tokens at most on SDK 2.28",
        "set seq_len to 32768 or less, or use SDK 2.29",
        when=(("seq_len", ">=", 32769),),
    ),
    Window(
        (2, 28), (2, 28), (), ("qwen2_vl", "qwen3_vl"),
        "the vision encoder of Qwen-VL has batch size 1 on SDK 2.28",
        "set vision_neuron_config.batch_size to 1, or use SDK 2.29",
        when=(("vision_neuron_config.batch_size", ">=", 2),),
    ),
    Window(
        (2, 27), (2, 28), (), ("llava", "pixtral"),
        "Pixtral is supported up to batch_size 32 on SDK 2.27 and 2.28",
        "set batch_size to 32 or less",
        when=(("batch_size", ">=", 33),),
    ),
    Window(
        (2, 27), (2, 28), (), ("llava", "pixtral"),
        "Pixtral is supported up to seq_len 10240 on SDK 2.27 and 2.28",
        "set seq_len to 10240 or less",
        when=(("seq_len", ">=", 10241),),
    ),
    Window(
        (2, 24), (2, 24), (), (),
        "SDK 2.24 takes more device memory than the releases before it, most with many buckets",
        "use fewer token_generation_buckets, or SDK 2.25",
        fatal=False,
        when=(("token_generation_buckets.length", ">=", 6),),
    ),
    Window(
        (2, 26), (2, 26), (), (),
        "on SDK 2.26 weights that are sharded while loading slow decoding at batch_size 32 and "
        "above",
        "set save_sharded_checkpoint=true",
        fatal=False,
        when=(("batch_size", ">=", 32), ("save_sharded_checkpoint", "==", False)),
    ),
    Window(
        (2, 27), (2, 27), ("trn2",), ("qwen3_moe", "llava", "pixtral"),
        "Qwen3-MoE and Pixtral are not fully optimised for trn2 on SDK 2.27",
        'set [toolchain] sdk = "2.28"',
        fatal=False,
    ),
    Window(
        (2, 29), (2, 29), (), (),
        "SDK 2.29 has an accuracy issue at batch_size 4 and below with the top-k kernel off",
        "leave on_device_sampling_config.top_k_kernel_enabled on",
        fatal=False,
        when=(
            ("on_device_sampling_config.top_k_kernel_enabled", "==", False),
            ("batch_size", "<", 5),
        ),
    ),
    Window(
        (2, 29), (2, 29), (), ("qwen3_moe",),
        "Qwen3-MoE 235B may decode more slowly on SDK 2.29 than before",
        'set [toolchain] sdk = "2.28" where its decoding speed matters',
        fatal=False,
    ),
    Window(
        (2, 29), NEWEST, (), ("llama4", "llama4_text", "mixtral", "dbrx"),
        "Llama 4, Mixtral and DBRX perform best pinned at SDK 2.28",
        'set [toolchain] sdk = "2.28"',
        fatal=False,
    ),
    Window(
        (2, 30), NEWEST, (), (),
        "NxD Inference 0.10 has no public source; this config was checked against 0.9",
        'set [toolchain] sdk = "2.29" for a verified one',
        fatal=False,
    ),
)  # fmt: skip


def sdk_of(packages: Mapping[str, str]) -> tuple[int, int] | None:
    """The SDK that a toolchain's NxDI came with, as (major, minor), or None."""
    version = nxdi_version(packages)
    return None if version is None else NXDI_SDK.get(version)


def check_windows(
    config: Mapping[str, Any], *, family: str | None, target: Target, packages: Mapping[str, str]
) -> list[str]:
    """Warnings of the windows that apply.

    Raises:
        ConfigError: outside what this SDK runs.
    """
    sdk = sdk_of(packages)
    if sdk is None or target.is_cpu:
        return []
    warnings = []
    for window in WINDOWS:
        if not applies(window, config, family, target, sdk):
            continue
        if window.fatal:
            raise _refusal(window, config, family, target, packages)
        warnings.append(f"{window.text}; {window.fix}")
    return warnings


def applies(
    window: Window,
    config: Mapping[str, Any],
    family: str | None,
    target: Target,
    sdk: tuple[int, int],
) -> bool:
    """Whether a window holds for this config with this SDK."""
    if not window.since <= sdk <= window.until:
        return False
    if window.targets and target.platform not in window.targets:
        return False
    if window.families and family not in window.families:
        return False
    return all(_holds(config, condition) for condition in window.when)


def _holds(config: Mapping[str, Any], condition: Condition) -> bool:
    path, sign, bound = condition
    value = _value(config, path)
    if value is None:
        # Of the keywords in the table only this one has a default that a condition names.
        return path == "save_sharded_checkpoint" and bound is False
    if sign == "==":
        return bool(value == bound)
    return bool(value < bound if sign == "<" else value >= bound)


def _value(config: Mapping[str, Any], path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        if name == "length" and isinstance(value, list | tuple):
            return len(value)
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _refusal(
    window: Window,
    config: Mapping[str, Any],
    family: str | None,
    target: Target,
    packages: Mapping[str, str],
) -> ConfigError:
    nxdi = packages["neuronx-distributed-inference"]
    field, value, legal = "target", target.platform, window.fix
    if window.when:
        field, sign, bound = window.when[0]
        value = _value(config, field)
        legal = f">= {bound}" if sign == "<" else f"< {bound}"
    about = f"{family or 'this model'} on {target.platform} with NxD Inference {nxdi}"
    return ConfigError(
        f"{window.text} ({about})", field=field, value=value, legal=legal, hint=window.fix
    )
