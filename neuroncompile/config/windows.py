"""Which SDK runs what: known windows and known issues, as one table.

From the release notes of NxD Inference. The SDK is read off the NxDI version, because a
toolchain is its packages, whatever it is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from neuroncompile.errors import ConfigError
from neuroncompile.hardware.targets import Target

__all__ = ["WINDOWS", "Window", "check_windows", "sdk_of"]

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


class Window(NamedTuple):
    """One known limit.

    Attributes:
        since, until: SDKs it holds for, both ends included.
        targets: platforms it holds for; empty for all.
        families: `model_type`s it holds for; empty for all.
        text: what is wrong, in the release notes' sense.
        fix: what to do instead.
        fatal: an error rather than a warning.
        batch_below: holds only for batch_size below this.
        setting: (dotted keyword, value) it holds for, or None for any config.
    """

    since: tuple[int, int]
    until: tuple[int, int]
    targets: tuple[str, ...]
    families: tuple[str, ...]
    text: str
    fix: str
    fatal: bool = True
    batch_below: int | None = None
    setting: tuple[str, Any] | None = None


WINDOWS = (
    Window(
        (2, 29), NEWEST, ("trn1", "trn1n", "inf2"), (),
        "NxD Inference runs on trn2 and newer only from SDK 2.29 on",
        'pin SDK 2.28 (--toolchain sdk-2.28, or sdk = "2.28" under [toolchain]) or target trn2',
    ),
    Window(
        (2, 21), (2, 28), ("trn3",), (),
        "NxD Inference knows trn3 from SDK 2.29 on",
        'set [toolchain] sdk = "2.29" or newer',
    ),
    Window(
        (2, 28), (2, 28), (), ("qwen3_moe",),
        "Qwen3-MoE needs batch_size 16 or more on SDK 2.28",
        "set batch_size to 16 or more, or use SDK 2.29",
        batch_below=16,
    ),
    Window(
        (2, 29), (2, 29), (), (),
        "SDK 2.29 has an accuracy issue at batch_size 4 and below with the top-k kernel off",
        "leave on_device_sampling_config.top_k_kernel_enabled on",
        fatal=False,
        batch_below=5,
        setting=("on_device_sampling_config.top_k_kernel_enabled", False),
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
    parts = packages.get("neuronx-distributed-inference", "").split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return NXDI_SDK.get((int(parts[0]), int(parts[1])))


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
        if not _applies(window, config, family, target, sdk):
            continue
        if window.fatal:
            raise _refusal(window, config, family, target, packages)
        warnings.append(f"{window.text}; {window.fix}")
    return warnings


def _applies(
    window: Window,
    config: Mapping[str, Any],
    family: str | None,
    target: Target,
    sdk: tuple[int, int],
) -> bool:
    if not window.since <= sdk <= window.until:
        return False
    if window.targets and target.platform not in window.targets:
        return False
    if window.families and family not in window.families:
        return False
    if window.batch_below is not None and config["batch_size"] >= window.batch_below:
        return False
    if window.setting is not None:
        value: Any = config
        for name in window.setting[0].split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return bool(value == window.setting[1])
    return True


def _refusal(
    window: Window,
    config: Mapping[str, Any],
    family: str | None,
    target: Target,
    packages: Mapping[str, str],
) -> ConfigError:
    nxdi = packages["neuronx-distributed-inference"]
    if window.batch_below is not None:
        field, value, legal = "batch_size", config["batch_size"], f">= {window.batch_below}"
    else:
        field, value, legal = "target", target.platform, window.fix
    about = f"{family or 'this model'} on {target.platform} with NxD Inference {nxdi}"
    return ConfigError(
        f"{window.text} ({about})", field=field, value=value, legal=legal, hint=window.fix
    )
