"""Environment variables around NxD Inference: which change a program, and what becomes of each.

A build for Neuron hands its worker the variables of this table that change the program, puts
them into the key, and nothing else: what the caller's shell happens to hold would otherwise
make another program under the same name. So a variable of the vendor's that is not in the table
is refused by name. The cpu target looks at none of them.

From NxDI 0.9.0, NxD 0.18.0 and the Neuron SDK's documentation of variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from neuroncompile.errors import ConfigError, nearest
from neuroncompile.hardware.targets import CHIPS, Target

__all__ = ["VARIABLES", "Environment", "read_environment"]

_PREFIXES = ("NEURON_", "NXD_", "XLA_", "UNSAFE_")
_OTHERS = ("BASE_COMPILE_WORK_DIR", "CHECKPOINT_FORMAT", "DISABLE_NUMERIC_CC_TOKEN")

_LOADING = "read when a program is loaded or run"
_CACHE = "where the vendor's cache is; this store takes its place"
_DEBUG = "changes the text of a graph and not its code; not handed on"

VARIABLES: dict[str, tuple[str, str]] = {
    # --- the neuron config says the same
    "NEURON_RT_VIRTUAL_CORE_SIZE": ("config logical_nc_config", "older name"),
    "NEURON_LOGICAL_NC_CONFIG": ("config logical_nc_config", "wins over the keyword in NxDI"),
    "DISABLE_NUMERIC_CC_TOKEN": ("config disable_numeric_cc_token", "set before tracing"),
    # --- the command line says the same
    "NEURON_PLATFORM_TARGET_OVERRIDE": ("target", "must be the target that is built for"),
    "NEURON_CC_FLAGS": ("flags", "compiler flags, less those of the wrapper"),
    # --- read while a graph is made
    "NEURON_FUSE_SOFTMAX": ("program", "custom lowering of softmax"),
    "NEURON_CUSTOM_SILU": ("program", "custom lowering of SiLU"),
    "NEURON_TRANSFER_WITH_STATIC_RING_OPS": ("program", "modules whose inputs are static rings"),
    "NEURON_TRANSFER_ALL_PARAMETERS_WITH_STATIC_RING": ("program", "all parameters are static"),
    "NEURON_EXPERIMENTAL_COMPRESS_RG": ("program", "replica groups are compressed"),
    "NEURON_COMBINE_KV_ALLOCATIONS": ("program", "cache tensors are joined"),
    "NEURON_FLOAT4X4_IS_FLOAT16": ("program", "carrier of four-bit weights"),
    "XLA_DISABLE_FUNCTIONALIZATION": ("program", "functionalisation is off"),
    "XLA_ENABLE_PARAM_ALIASING": ("program", "0 stops aliasing of the cache"),
    "XLA_HANDLE_SPECIAL_SCALAR": ("program", "constants are kept as such (FP8)"),
    "UNSAFE_FP8FNCAST": ("program", "e4m3fn is read as e4m3 (FP8)"),
    # --- never
    "NXD_LAYOUT_TRANSFORMATION_OPTIONS": (
        "refused",
        "it ties the weight shards to one program, whose layout no other reads",
    ),
    "NXD_CPU_MODE": ("refused", "it takes a path that makes no Neuron program"),
    "CHECKPOINT_FORMAT": ("refused", "it changes how weights are sharded and no key says so"),
    "XLA_USE_BF16": ("refused", "it casts behind the config's back; set torch_dtype"),
    "XLA_DOWNCAST_BF16": ("refused", "it casts behind the config's back; set torch_dtype"),
    "NEURON_EXTRACT_GRAPHS_ONLY": ("refused", "it makes graphs and no program"),
    # --- of no effect on what is compiled
    "BASE_COMPILE_WORK_DIR": ("ignored", "the work directory follows from the key"),
    "NEURON_COMPILE_CACHE_URL": ("ignored", _CACHE),
    "NEURON_COMPILED_ARTIFACTS": ("ignored", _CACHE),
    "NEURON_LIBTORCH_": ("ignored", _CACHE),
    "NEURON_PARALLEL_COMPILE_": ("ignored", "of neuron_parallel_compile"),
    "NEURON_FRAMEWORK_DEBUG": ("ignored", _DEBUG),
    "XLA_IR_DEBUG": ("ignored", _DEBUG),
    "XLA_HLO_DEBUG": ("ignored", _DEBUG),
    "NEURON_RT_": ("ignored", _LOADING),
    "NEURON_VISIBLE_DEVICES": ("ignored", _LOADING),
    "NEURON_SCRATCHPAD_PAGE_SIZE": ("ignored", f"{_LOADING}; the flag is scratchpad_page_size"),
    "NEURON_PROCESS_TAG": ("ignored", _LOADING),
    "NEURON_NUM_RECENT_MODELS_TO_KEEP": ("ignored", _LOADING),
}
"""Name, or beginning of names with "_" at its end → (what becomes of it, why).

"config KEYWORD" sets a keyword, "target" has to agree, "flags" and "program" enter the key,
"refused" stops a build, "ignored" reaches no compiler.
"""


class Environment(NamedTuple):
    """What the caller's environment says about a program.

    Attributes:
        config: (keyword, value, origin) in the order they are laid over each other.
        variables: name → text of those that reach the compiler's process.
    """

    config: tuple[tuple[str, Any, str], ...] = ()
    variables: Mapping[str, str] = {}


def read_environment(environ: Mapping[str, str], target: Target) -> Environment:
    """Sort the caller's variables for a Neuron target.

    An empty variable is an unset one.

    Raises:
        ConfigError: one that is refused, contradicts the target, or is nobody's.
    """
    config: list[tuple[str, Any, str]] = []
    variables = {}
    for name in sorted(environ, key=_order):
        text = environ[name].strip()
        if not text or not (name.startswith(_PREFIXES) or name in _OTHERS):
            continue
        action, reason = _row(name)
        if action.startswith("config "):
            keyword = action.removeprefix("config ")
            config.append((keyword, _value(keyword, text), f"environment {name}"))
        elif action == "program":
            variables[name] = text
        elif action == "target":
            _agree(name, text, target)
        elif action == "refused":
            raise ConfigError(
                f"{name} is set in the environment; {reason}",
                field=name,
                value=text,
                legal="unset",
                hint=f"unset {name}",
            )
    return Environment(tuple(config), variables)


def _order(name: str) -> tuple[int, str]:
    """The table's: of two names for one thing the later is the one that NxDI lets win."""
    names = list(VARIABLES)
    return (names.index(name) if name in VARIABLES else len(names)), name


def _row(name: str) -> tuple[str, str]:
    row = VARIABLES.get(name)
    for beginning, found in VARIABLES.items():
        if row is None and beginning.endswith("_") and name.startswith(beginning):
            row = found
    if row is None:
        near = nearest(name, [known for known in VARIABLES if not known.endswith("_")])
        raise ConfigError(
            f"{name} is set in the environment, and what it does to a program is not known",
            field=name,
            value=None,  # it may be a secret
            legal="unset",
            hint=f"unset {name}" + (f"; did you mean {near}?" if near else ""),
        )
    return row


def _value(keyword: str, text: str) -> Any:
    if keyword == "disable_numeric_cc_token":
        return text.lower() not in ("0", "false")
    return int(text) if text.isdigit() else text


def _agree(name: str, text: str, target: Target) -> None:
    generation = CHIPS[target.platform].neuroncore.replace("v", "gen")
    if text.lower() in (target.platform, generation):
        return
    raise ConfigError(
        f"{name} is {text!r} in the environment; the target is {target.platform}",
        field=name,
        value=text,
        legal=target.platform,
        hint=f"unset {name}" + (f", or build with --target {text}" if text in CHIPS else ""),
    )
