from neuronx_distributed_inference.models.application_base import NeuronBaseForImageToText
from neuronx_distributed_inference.models.config import ImageToTextInferenceConfig


class NeuronQwen2VLForCausalLM(NeuronBaseForImageToText):
    @classmethod
    def get_config_cls(cls):
        return ImageToTextInferenceConfig
