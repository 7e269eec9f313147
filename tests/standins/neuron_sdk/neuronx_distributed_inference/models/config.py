"""Stand-in: NxDI's config objects, with its habit of dropping what it does not know."""

import json
import logging
import os


class Nested:
    def __init__(self, **kwargs):
        self.__dict__.update(kwargs)


class OnDeviceSamplingConfig(Nested):
    def __init__(self, **kwargs):
        self.dynamic = kwargs.pop("dynamic", False)
        self.deterministic = kwargs.pop("deterministic", False)
        self.do_sample = kwargs.pop("do_sample", False)
        self.top_k = kwargs.pop("top_k", 1)
        self.top_p = kwargs.pop("top_p", 1.0)
        self.temperature = kwargs.pop("temperature", 1.0)
        self.global_topk = kwargs.pop("global_topk", 256)


class LoraServingConfig(Nested):
    def __init__(self, max_loras=1, max_lora_rank=16, target_modules=None, **kwargs):
        self.max_loras, self.max_lora_rank = max_loras, max_lora_rank
        self.target_modules = target_modules
        super().__init__(**kwargs)


DEFAULTS = {
    "batch_size": 1,
    "padding_side": "right",
    "seq_len": 128,
    "torch_dtype": "bfloat16",
    "tp_degree": 1,
    "pp_degree": 1,
    "ep_degree": 1,
    "start_rank_id": 0,
    "enable_bucketing": False,
    "is_continuous_batching": False,
    "sequence_parallel_enabled": False,
    "speculation_length": 0,
    "enable_fused_speculation": False,
    "enable_eagle_speculation": False,
    "is_eagle_draft": False,
    "is_medusa": False,
    "trace_tokengen_model": True,
    "quantized": False,
    "quantized_checkpoints_path": None,
    "quantization_type": "per_tensor_symmetric",
    "quantization_dtype": "int8",
    "modules_to_not_convert": None,
    "draft_model_modules_to_not_convert": None,
    "kv_cache_quant": False,
    "fused_qkv": False,
    "vocab_parallel": False,
    "flash_decoding_enabled": False,
    "is_block_kv_layout": False,
    "is_prefix_caching": False,
    "pa_num_blocks": None,
    "pa_block_size": None,
    "save_sharded_checkpoint": False,
    "skip_sharding": False,
    "skip_warmup": False,
    "async_mode": False,
    "allow_input_truncation": False,
    "output_logits": False,
    "attn_kernel_enabled": None,
    "qkv_kernel_enabled": False,
    "mlp_kernel_enabled": False,
    "cast_type": "config",
    "disable_numeric_cc_token": False,
    "on_device_sampling_config": None,
    "lora_config": None,
    "scratchpad_page_size": None,
    "target": None,
    "on_cpu": False,
}


class NeuronConfig:
    def __init__(self, **kwargs):
        for name, value in DEFAULTS.items():
            setattr(self, name, kwargs.pop(name, value))
        if self.quantized:
            assert self.quantized_checkpoints_path, "quantized_checkpoints_path is required"
        if type(self.on_device_sampling_config) is dict:
            self.on_device_sampling_config = OnDeviceSamplingConfig(
                **self.on_device_sampling_config
            )
        if type(self.lora_config) is dict:
            self.lora_config = LoraServingConfig(**self.lora_config)
        self.max_context_length = kwargs.pop("max_context_length", self.seq_len)
        self.ctx_batch_size = kwargs.pop("ctx_batch_size", self.batch_size)
        self.tkg_batch_size = kwargs.pop("tkg_batch_size", self.batch_size)
        self.world_size = kwargs.pop("world_size", self.tp_degree * self.pp_degree * self.ep_degree)
        self.local_ranks_size = kwargs.pop("local_ranks_size", self.world_size)
        asked = kwargs.pop("logical_nc_config", 1)
        self.logical_nc_config = int(os.environ.get("NEURON_LOGICAL_NC_CONFIG", asked))
        self.context_encoding_buckets = kwargs.pop("context_encoding_buckets", None) or [
            self.max_context_length
        ]
        self.token_generation_buckets = kwargs.pop("token_generation_buckets", None) or [
            self.seq_len
        ]
        self.buckets = kwargs.pop("buckets", [self.seq_len])
        if kwargs:
            logging.warning("NeuronConfig init: Unexpected keyword arguments: %s", kwargs)


class MoENeuronConfig(NeuronConfig):
    def __init__(self, capacity_factor=None, glu_mlp=True, **kwargs):
        self.capacity_factor, self.glu_mlp = capacity_factor, glu_mlp
        super().__init__(**kwargs)


class FusedSpecNeuronConfig:
    def __init__(self, worker_cls, draft_config=None, draft_model_path=None, draft_model_cls=None):
        self.worker_cls, self.draft_model_cls = worker_cls, draft_model_cls
        self.draft_config, self.draft_model_path = draft_config, draft_model_path


def to_dict(value):
    if isinstance(value, type):
        return {"__module__": value.__module__, "__name__": value.__name__}
    if isinstance(value, dict):
        return {name: to_dict(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_dict(item) for item in value]
    return to_dict(vars(value)) if hasattr(value, "__dict__") else value


class InferenceConfig:
    def __init__(self, neuron_config, fused_spec_config=None, load_config=None, **kwargs):
        self.neuron_config, self.fused_spec_config = neuron_config, fused_spec_config
        self.metadata, self.num_cores_per_group = None, 1
        if load_config is not None:
            load_config(self)
        self.__dict__.update(kwargs)
        for name in ("hidden_size", "num_attention_heads", "vocab_size", "pad_token_id"):
            assert hasattr(self, name), f"Config must define ['{name}']"

    def to_json_string(self):
        return json.dumps(to_dict(self), indent=2, sort_keys=True)

    def save(self, path):
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "neuron_config.json"), "w") as out:
            out.write(self.to_json_string() + "\n")

    @classmethod
    def get_neuron_config_cls(cls):
        return NeuronConfig


class MoEInferenceConfig(InferenceConfig):
    @classmethod
    def get_neuron_config_cls(cls):
        return MoENeuronConfig


class ImageToTextInferenceConfig(InferenceConfig):
    def __init__(self, text_neuron_config, vision_neuron_config, load_config=None, **kwargs):
        super().__init__(text_neuron_config, load_config=load_config, **kwargs)
        self.text_config = InferenceConfig(text_neuron_config, **self._part(self.text_config))
        self.text_config._name_or_path = self._name_or_path
        self.vision_config = InferenceConfig(
            vision_neuron_config,
            **{**self._part(self.text_config), **self._part(self.vision_config)},
        )

    @staticmethod
    def _part(config):
        values = config if isinstance(config, dict) else vars(config)
        apart = ("neuron_config", "fused_spec_config", "metadata")
        return {name: value for name, value in values.items() if name not in apart}
