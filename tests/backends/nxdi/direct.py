"""Run by the vendor's interpreter: constructs configs and applications as NxDI's users do.

Reads a JSON list of {"class", "model", "neuron"}; prints one of {"config", "graphs"} or {"error"}.
"""

import importlib
import json
import sys


def graphs(app):
    found = []
    for wrapper in [*getattr(app, "models", []), *getattr(app, "vision_models", [])]:
        neuron = wrapper.config.neuron_config
        for bucket in neuron.buckets:
            row = [wrapper.tag, neuron.batch_size, bucket, " ".join(wrapper.compiler_args.split())]
            found.append(row)
    return found


def construct(case):
    from neuronx_distributed_inference.utils.hf_adapter import load_pretrained_config

    module, _, name = case["class"].rpartition(":")
    cls = getattr(importlib.import_module(module), name)
    neuron_cls = cls.get_neuron_config_cls()
    load = load_pretrained_config(case["model"])
    vision = case["neuron"].pop("vision_neuron_config", None)
    if vision is None:
        config = cls.get_config_cls()(neuron_cls(**case["neuron"]), load_config=load)
    else:
        config = cls.get_config_cls()(
            text_neuron_config=neuron_cls(**case["neuron"]),
            vision_neuron_config=neuron_cls(**vision),
            load_config=load,
        )
    return {
        "config": json.loads(config.to_json_string()),
        "graphs": graphs(cls(case["model"], config)),
    }


def main():
    results = []
    for case in json.loads(sys.stdin.read()):
        try:
            results.append(construct(case))
        except Exception as error:
            results.append({"error": repr(error)})
    sys.stdout.write("\n" + json.dumps(results) + "\n")


main()
