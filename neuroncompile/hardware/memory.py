"""Device memory of a target, and which number formats its cores compute with.

Figures from the AWS Neuron documentation (aws-neuron-sdk 2.32, about-neuron/arch and
neuron-features/logical-neuroncore-config.rst).
"""

from __future__ import annotations

from neuroncompile.errors import ConfigError
from neuroncompile.hardware.targets import CHIPS, INSTANCES, Target

__all__ = ["DTYPES", "GIB", "core_memory", "device_memory"]

GIB = 1 << 30

_V2 = ("float32", "tf32", "bfloat16", "float16", "fp8 e4m3", "fp8 e5m2", "fp8 e3m4")
DTYPES = {
    "v2": _V2,
    "v3": (*_V2, "int64 (with --native-int64)"),
    "v4": (*_V2, "int64 (with --native-int64)", "fp8 e4m3fn", "mxfp8", "mxfp4"),
}
"""NeuronCore version → formats. e4m3 is the form with infinities, largest value 240; the OCP
form e4m3fn, largest value 448, is native from trn3 on."""


def core_memory(target: Target) -> int:
    """Bytes of HBM that one logical core can count on.

    An equal share of the device's memory: 16 GiB on trn1 and inf2, 24 on trn2 and 36 on trn3 at
    LNC 2. At LNC 1 two cores of trn2 and trn3 share one such bank, and each gets half of it.

    Raises:
        ConfigError: the cpu target has no device memory.
    """
    if target.is_cpu:
        raise ConfigError(
            "the cpu target has no device memory",
            field="target",
            value=target.text,
            legal=list(CHIPS),
            hint="name a Neuron target with --target",
        )
    chip = CHIPS[target.platform]
    return chip.hbm_gib * GIB // chip.physical_cores * (target.lnc or 1)


def device_memory(instance: str) -> int:
    """Bytes of HBM of all devices of an EC2 instance together."""
    row = INSTANCES[instance]
    return row.devices * CHIPS[row.platform].hbm_gib * GIB
