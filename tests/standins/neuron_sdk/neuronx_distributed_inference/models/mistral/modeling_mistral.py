from neuronx_distributed_inference.models.application_base import NeuronApplicationBase
from neuronx_distributed_inference.models.config import InferenceConfig


class Model:
    """The worker class of fused speculation."""


class NeuronMistralForCausalLM(NeuronApplicationBase):
    _model_cls = Model

    @classmethod
    def get_config_cls(cls):
        return InferenceConfig
