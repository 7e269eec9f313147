"""Stand-in: a config.json into an InferenceConfig, without transformers."""

import json
import os


def load_pretrained_config(path):
    def load_config(config):
        with open(os.path.join(path, "config.json")) as file:
            values = json.load(file)
        dtype = values.pop("torch_dtype", values.pop("dtype", None))
        del dtype  # NeuronConfig has its own
        values.setdefault("pad_token_id", None)
        values.setdefault("eos_token_id", 2)
        config.__dict__.update(values)
        config._name_or_path = str(path)
        config.transformers_version = "4.57.6"

    return load_config
