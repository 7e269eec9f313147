"""Codes of neuronx-cc: class, retry, and what meaning and remedy must speak of.

From compiler/error-codes, release-notes/components/compiler.rst (aws-neuron-sdk 2.32) and logs
that users have published; "|" separates the words of the meaning from those of the remedy.
"""

from __future__ import annotations

SHRINK = "tensor-parallel-size batch bucket"
INTERNAL = "internal_compiler_error once_changed"
QUANTIZE = "mx_contract no QuantizeMX | 32 trn3"
MATMUL = "mx_contract no ScaledMatmul | four trn3"
DOWNCAST = "integer_downcast changed"

CODES = {
    "NCC_EARG001": "bad_argument changed logical lnc | logical-nc-config trn1",
    "NCC_EARG002": "bad_argument changed argument | NEURON_CC_FLAGS toolchain",
    "NCC_EBIR023": "kernel_limit changed MLP 4096 | tensor-parallel-size mlp_kernel_enabled",
    "NCC_EBVF030": f"instruction_limit changed instructions | {SHRINK} -O1",
    "NCC_EVRF007": f"instruction_limit changed instructions | {SHRINK} -O1",
    "NCC_EXTP004": f"instruction_limit changed instructions | {SHRINK} -O1",
    "NCC_EXTP003": f"instruction_limit changed operator | {SHRINK} tile",
    "NCC_IXTP002": f"instruction_limit changed million | {SHRINK} -O1",
    "NCC_EHCA005": "unsupported_op no custom | nki neuronx-cc release",
    "NCC_EVRF015": "unsupported_op no custom | nki neuronx-cc release",
    "NCC_EMOD025": "dynamic_shape no dimension | bucket pad",
    "NCC_EOOM001": "oom_device changed memory core | seq-len tensor-parallel-size lnc FP8",
    "NCC_EOOM002": "oom_device changed memory core | seq-len tensor-parallel-size lnc FP8",
    "NCC_EVRF009": "oom_device changed bank | tensor-parallel-size twice",
    "NCC_EXSP001": "oom_device changed activations | batch bucket tensor-parallel-size",
    "XCG815": "oom_device changed estimated older | seq-len tensor-parallel-size",
    "NCC_ESFH002": "unsupported_dtype no unsigned 64-bit | --native-int64",
    "NCC_ESFH001": "unsupported_dtype no signed 64-bit clamp | 32-bit",
    "NCC_ESPP004": "unsupported_dtype no format | --dtype",
    "NCC_ESPP047": "unsupported_dtype changed 8-bit | trn3 unsafe-fp8e4m3fn",
    "NCC_EUOC002": "unsupported_op no operator | list-operators",
    "NCC_EVRF001": "unsupported_op no operator | list-operators",
    "NCC_EVRF004": "unsupported_dtype no complex | imaginary 2.32",
    "NCC_EVRF005": "unsupported_dtype no fnuz | convert",
    "NCC_EVRF006": "unsupported_op no random | default",
    "NCC_EVRF010": "unsupported_op no dilates kernel | dilate",
    "NCC_EVRF011": "unsupported_op no strides dilated | split",
    "NCC_EVRF013": "unsupported_op no top-k integers | float",
    "NCC_EVRF016": "unsupported_op no scatter integers | float",
    "NCC_EVRF017": "unsupported_op no base | 1",
    "NCC_EVRF018": "unsupported_op no window | 1",
    "NCC_EVRF019": "unsupported_op no two | one",
    "NCC_EVRF022": "unsupported_op no shift 32 | int32",
    "NCC_EVRF031": "unsupported_op no scatter beyond | indices",
    "NCC_EVRF029": "unsupported_op no sort | host kernel",
    "NCC_EVRF035": f"{DOWNCAST} product | dot implicit-integer-downcast",
    "NCC_EVRF060": f"{DOWNCAST} scatter | scatter implicit-integer-downcast",
    "NCC_EVRF061": f"{DOWNCAST} all-reduce | all_reduce implicit-integer-downcast",
    "NCC_EVRF062": f"{DOWNCAST} power | pow implicit-integer-downcast",
    "NCC_EVRF063": f"{DOWNCAST} reduce-scatter | reduce_scatter implicit-integer-downcast",
    "NCC_EVRF036": QUANTIZE,
    "NCC_EVRF037": QUANTIZE,
    "NCC_EVRF038": QUANTIZE,
    "NCC_EVRF039": QUANTIZE,
    "NCC_EVRF040": QUANTIZE,
    "NCC_EVRF041": QUANTIZE,
    "NCC_EVRF042": QUANTIZE,
    "NCC_EVRF043": MATMUL,
    "NCC_EVRF044": MATMUL,
    "NCC_EVRF045": MATMUL,
    "NCC_EVRF046": MATMUL,
    "NCC_EVRF047": MATMUL,
    "NCC_EVRF048": MATMUL,
    "NCC_EVRF049": MATMUL,
    "NCC_EVRF050": MATMUL,
    "NCC_EVRF053": MATMUL,
    "NCC_EVRF054": MATMUL,
    "NCC_EVRF055": MATMUL,
    "NCC_EVRF057": QUANTIZE,
    "NCC_EVRF058": QUANTIZE,
    "NCC_EVRF051": "unsupported_dtype changed e4m3fn older | trn3 unsafe-fp8e4m3fn QuantizeMX",
    "NCC_EVRF052": "unsupported_dtype changed legacy newer | e4m3fn",
    "NCC_EOCP001": "unsupported_dtype changed legacy OCP | trn3 uint8",
    "NCC_EVRF056": "bad_graph no gather max_position_embeddings | seq-len",
    "NCC_EVRF059": "kernel_artifact_missing after_fix kernel file | trace",
    "NCC_EVRF064": "bad_graph no HLO | release",
    "NCC_EVRF065": "nki_version after_fix nki old | nki cache",
    "NCC_ESMP002": "bad_graph no constant index | index",
    "NCC_ETUP002": "unsupported_op no tuple | marker",
    "NCC_IRPX902": f"{INTERNAL} predicates | 2.32",
    "NCC_IRPX901": f"{INTERNAL} predicates | toolchain",
    "NCC_IBIR229": f"{INTERNAL} on-chip | bucket 2.30",
    "NCC_IBIR182": f"{INTERNAL} written collectives | 2.30",
    "NCC_IBIR297": f"{INTERNAL} experts | kernels",
    "NCC_IBIR440": f"{INTERNAL} collective | kernel",
    "NCC_ILIN902": f"{INTERNAL} softmax | 2.30",
    "NCC_INLA001": f"{INTERNAL} legal | -O 2.29",
    "NCC_ITIN902": f"{INTERNAL} index long | -O1",
    "NCC_ITEN406": f"{INTERNAL} strides | reshape print",
    "NCC_IBCG901": f"{INTERNAL} broadcast | kernel",
    "NCC_ISFV902": f"{INTERNAL} vectoriser | bfloat16",
    "NCC_IGCA030": f"{INTERNAL} tile | bucket",
    "NCC_IGCA090": f"{INTERNAL} written | kernel",
    "NCC_INKI016": f"{INTERNAL} kernel shapes | --set",
    "NCC_ISPP027": f"{INTERNAL} several argmax | rewrite",
    "NCC_ISPP060": f"{INTERNAL} zero | empty",
    "NCC_IPCC901": f"{INTERNAL} batch 8 | batch",
    "NCC_IINAR001": f"{INTERNAL} -O1 | -O2",
    "NCC_CFG015": f"{INTERNAL} stack nested | 2.29",
    "NCC_IINL902": "internal_compiler_error same now | --reproduce int32",
    "NCC_IBCG902": "internal_compiler_error no narrowed | float32",
    "NCC_IXCG856": f"{INTERNAL} eight Qwen inf2 | tensor-parallel-size host",
    "NCC_ITEN404": f"{INTERNAL} intrinsic rotary | toolchain",
    "F137": "oom_host yes killed memory | --jobs -O1",
    "F134": "compiler_crash once_changed aborted | --reduce",
    "F139": "compiler_crash once_changed segmentation | --reduce",
}

STATUSES = """
    0 NRT_SUCCESS ok
    1 NRT_FAILURE runtime
    2 NRT_INVALID model
    3 NRT_INVALID_HANDLE caller
    4 NRT_RESOURCE oom_device
    5 NRT_TIMEOUT timeout
    6 NRT_HW_ERROR hardware
    7 NRT_QUEUE_FULL transient
    9 NRT_LOAD_NOT_ENOUGH_NC placement
    10 NRT_UNSUPPORTED_NEFF_VERSION version
    11 NRT_FAIL_HOST_MEM_ALLOC oom_host
    13 NRT_UNINITIALIZED caller
    14 NRT_CLOSED caller
    15 NRT_QUEUE_EMPTY transient
    101 NRT_EXEC_UNIT_UNRECOVERABLE hardware_reset
    1002 NRT_EXEC_BAD_INPUT caller
    1003 NRT_EXEC_COMPLETED_WITH_NUM_ERR numerical
    1004 NRT_EXEC_COMPLETED_WITH_ERR hardware
    1005 NRT_EXEC_NC_BUSY busy
    1006 NRT_EXEC_OOB model
    1100 NRT_COLL_PENDING transient
    1200 NRT_EXEC_HW_ERR_COLLECTIVES collectives
    1201 NRT_EXEC_HW_ERR_HBM_UE hardware
    1202 NRT_EXEC_HW_ERR_NC_UE hardware
    1203 NRT_EXEC_HW_ERR_DMA_ABORT hardware
    1204 NRT_EXEC_SW_NQ_OVERFLOW config
    1205 NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE hardware
    1206 NRT_NETWORK_PROXY_FAILURE network
"""
