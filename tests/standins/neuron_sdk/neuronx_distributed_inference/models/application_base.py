"""Stand-in: NxDI's application: config saved first, traced, packed, then sharded."""

import copy
import json
import os
import struct
from pathlib import Path

from neuronx_distributed.trace.model_builder import ModelBuilder, work_directory

from neuronx_distributed_inference.models.config import InferenceConfig


class ModelWrapper:
    def __init__(self, config, tag, batch, buckets, priority_model_idx=None):
        self.config = copy.deepcopy(config)
        self.tag, self.priority_model_idx = tag, priority_model_idx
        neuron = self.config.neuron_config
        neuron.batch_size, neuron.buckets = batch, list(buckets)
        level = "-O1" if tag in ("context_encoding_model", "vision_encoder_model") else "-O2"
        self.compiler_args = (
            "--auto-cast=none --model-type=transformer "
            "--tensorizer-options='--enable-ccop-compute-overlap ' "
            f"--lnc={neuron.logical_nc_config} {level} "
            "--internal-hlo2tensorizer-options='--verify-hlo=true' "
        )

    def graphs(self):
        """What of the config a graph holds: all but lists of buckets, and its own bucket."""
        config = json.loads(self.config.to_json_string())
        for name in ("_name_or_path", "transformers_version", "eos_token_id", "bos_token_id"):
            config.pop(name, None)
        neuron = config.pop("neuron_config")
        spec = config.pop("fused_spec_config", None)
        if not spec:
            config.pop("pad_token_id", None)
        for name in (
            "buckets",
            "context_encoding_buckets",
            "token_generation_buckets",
            "skip_warmup",
            "allow_input_truncation",
            "async_mode",
            "quantized_checkpoints_path",
        ):
            neuron.pop(name, None)
        return [
            {"submodel": self.tag, "bucket": bucket, "model": config, "neuron": neuron}
            for bucket in self.config.neuron_config.buckets
        ]


class NeuronApplicationBase:
    _model_cls = None

    def __init__(self, model_path, config=None, neuron_config=None):
        self.model_path, self.config = os.path.join(os.path.normpath(model_path), ""), config
        self.neuron_config = config.neuron_config
        self.models = self.wrappers(config)
        self._builder = None

    def wrappers(self, config):
        neuron = config.neuron_config
        token = "token_generation_model"
        if neuron.enable_fused_speculation:
            token = "fused_speculation_model"
        elif neuron.speculation_length:
            token = "speculation_model"
        return [
            ModelWrapper(
                config,
                "context_encoding_model",
                neuron.ctx_batch_size,
                neuron.context_encoding_buckets,
            ),
            ModelWrapper(config, token, neuron.tkg_batch_size, neuron.token_generation_buckets, 0),
        ]

    @classmethod
    def get_config_cls(cls):
        return InferenceConfig

    @classmethod
    def get_neuron_config_cls(cls):
        return cls.get_config_cls().get_neuron_config_cls()

    def builder(self, models, place=""):
        target = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
        builder = ModelBuilder(os.path.join(work_directory(), place), target)
        for model in models:
            builder.add(model.tag, model.graphs(), model.compiler_args, model.priority_model_idx)
        return builder

    def compile(
        self,
        compiled_model_path,
        debug=False,
        pre_shard_weights_hook=None,
        dry_run=False,
        disable_fail_fast=False,
    ):
        self.config.save(compiled_model_path)
        program = self.builder(self.models).trace(
            initialize_model_weights=False, disable_fail_fast=disable_fail_fast
        )
        self.config.save(work_directory())
        program.save(os.path.join(compiled_model_path, "model.pt"))
        self.shard_weights(compiled_model_path)

    def shard_weights(self, compiled_model_path, debug=False, pre_shard_weights_hook=None):
        neuron = self.neuron_config
        if neuron.skip_sharding or not neuron.save_sharded_checkpoint:
            return
        self.shard_checkpoint(os.path.join(compiled_model_path, "weights"))

    def shard_checkpoint(self, serialize_path):
        """Rows of every tensor, a rank each; `_name_or_path` wins over the path given."""
        source = Path(self.config._name_or_path)
        if not source.exists():
            source = Path(self.model_path)
        if self.neuron_config.quantized:
            source = Path(self.neuron_config.quantized_checkpoints_path)
        file = source / "model.safetensors"
        if not file.is_file():
            raise FileNotFoundError(
                f"Can not find model.safetensors or pytorch_model.bin in {source}"
            )
        data = file.read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
        header.pop("__metadata__", None)
        os.makedirs(serialize_path, exist_ok=True)
        neuron = self.neuron_config
        for rank in range(neuron.start_rank_id, neuron.start_rank_id + neuron.local_ranks_size):
            own, blob = {}, b""
            for name, row in sorted(header.items()):
                rows = row["shape"][0] // neuron.world_size
                first, last = row["data_offsets"]
                width = (last - first) // row["shape"][0]
                part = body[first + rank * rows * width : first + (rank + 1) * rows * width]
                own[name] = {
                    "dtype": row["dtype"],
                    "shape": [rows, *row["shape"][1:]],
                    "data_offsets": [len(blob), len(blob) + len(part)],
                }
                blob += part
            text = json.dumps(own).encode()
            path = os.path.join(serialize_path, f"tp{rank}_sharded_checkpoint.safetensors")
            with open(path, "wb") as out:
                out.write(struct.pack("<Q", len(text)) + text + blob)

    @classmethod
    def save_quantized_state_dict(cls, model_path, config):
        """Every byte halved: enough to tell a quantised checkpoint from its source."""
        data = Path(model_path, "model.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        head, body = data[: 8 + size], data[8 + size :]
        target = Path(config.neuron_config.quantized_checkpoints_path)
        (target / "model.safetensors").write_bytes(head + bytes(byte >> 1 for byte in body))


class NeuronBaseForImageToText(NeuronApplicationBase):
    """Two programs, as image_to_text_model_base.py has them."""

    def __init__(self, model_path, config=None):
        super().__init__(model_path, config)
        self.text_models = self.models
        vision = config.vision_config
        self.vision_models = [
            ModelWrapper(vision, "vision_encoder_model", 1, vision.neuron_config.buckets, 0)
        ]

    def compile(
        self,
        compiled_model_path,
        debug=False,
        pre_shard_weights_hook=None,
        dry_run=False,
        disable_fail_fast=False,
    ):
        self.config.save(compiled_model_path)
        for place, models in (
            ("text_model", self.text_models),
            ("vision_model", self.vision_models),
        ):
            os.makedirs(os.path.join(compiled_model_path, place), exist_ok=True)
            program = self.builder(models, place).trace(disable_fail_fast=disable_fail_fast)
            program.save(os.path.join(compiled_model_path, place, "model.pt"))

    def shard_text_weights(self, path, debug=False, pre_shard_weights_hook=None):
        self.shard_checkpoint(os.path.join(path, "weights"))

    def shard_vision_weights(self, path, debug=False, pre_shard_weights_hook=None):
        self.shard_checkpoint(os.path.join(path, "weights"))
