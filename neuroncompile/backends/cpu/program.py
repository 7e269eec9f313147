"""Which graphs a compile spec needs, and how an engine strings them together.

Imports nothing heavy: `build --dry-run` and a build that hits the store come through here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from neuroncompile.backends.base import Graph
from neuroncompile.keys import canonical_number, graph_spec, spec_key

if TYPE_CHECKING:
    from neuroncompile.models.architecture import ModelShape

__all__ = [
    "CONTEXT",
    "FORMAT",
    "TOKEN",
    "edge_kind",
    "graphs_of",
    "layer_kind",
    "program_for",
    "program_of",
]

CONTEXT, TOKEN = "context_encoding_model", "token_generation_model"

FORMAT = 1
"""Of program.json and of the graphs' inputs; an engine refuses any other."""


def graphs_of(spec: Mapping[str, Any]) -> list[Graph]:
    """The distinct graphs of a compile spec, longest to compile first.

    At -O1 one graph per submodel, bucket and distinct kind of layer, and one for the final
    norm and head; at -O2 one graph per submodel and bucket.
    """
    return list(_Plan(spec, _shape(spec)).graphs.values())


def program_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """program.json: what an engine must know beside the graphs and the weights."""
    return program_for(spec, _shape(spec))


def program_for(spec: Mapping[str, Any], shape: ModelShape) -> dict[str, Any]:
    """`program_of` for a shape already read from the spec's model config."""
    plan = _Plan(spec, shape)
    rope = shape.rope
    return {
        "format": FORMAT,
        "backend": "cpu",
        "name": f"{shape.family} {shape.num_hidden_layers}x{shape.hidden_size}",
        "toolchain": dict(spec["toolchain"]),
        "target": dict(spec["target"]),
        "dtype": plan.dtype,
        "batch_size": plan.batch,
        "seq_len": plan.length,
        "model": {
            "vocab_size": shape.vocab_size,
            "hidden_size": shape.hidden_size,
            "num_hidden_layers": shape.num_hidden_layers,
            "num_key_value_heads": shape.num_key_value_heads,
            "head_dim": shape.head_dim,
            "tie_word_embeddings": shape.tie_word_embeddings,
            "rope": {
                "kind": rope.kind,
                "theta": rope.theta,
                "factor": rope.factor,
                "low_freq_factor": rope.low_freq_factor,
                "high_freq_factor": rope.high_freq_factor,
                "original_max_position_embeddings": rope.original_max_position_embeddings,
            },
        },
        "context_encoding": plan.context,
        "token_generation": plan.token,
    }


def layer_kind(shape: ModelShape, index: int, bucket: int) -> dict[str, Any]:
    """What one layer's graph reads of the model; equal kinds share a graph.

    Rotary numbers, vocabulary, layer count and index stay out: the host makes the tables and
    looks up the embeddings. A window as long as the bucket hides nothing.
    """
    window = shape.sliding_windows[index]
    return {
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": canonical_number(shape.rms_norm_eps),
        "hidden_act": shape.hidden_act,
        "qkv_bias": shape.qkv_bias,
        "o_bias": shape.o_bias,
        "mlp_bias": shape.mlp_bias,
        "qk_norm": shape.qk_norm,
        "sliding_window": window if window is not None and window < bucket else None,
    }


def edge_kind(shape: ModelShape) -> dict[str, Any]:
    """What the final norm and head read of the model."""
    return {
        "hidden_size": shape.hidden_size,
        "vocab_size": shape.vocab_size,
        "rms_norm_eps": canonical_number(shape.rms_norm_eps),
    }


def _shape(spec: Mapping[str, Any]) -> ModelShape:
    from neuroncompile.models.architecture import shape_of

    return shape_of(_numbers(spec["model"]))


def _numbers(value: Any) -> Any:
    """Undo `canonical_number`: a spec spells floats as text, a model config does not."""
    if isinstance(value, Mapping):
        return {name: _numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return value
        return number if repr(number) == value else value
    return value


class _Plan:
    """The graphs by key, and per bucket the keys in the order an engine calls them."""

    def __init__(self, spec: Mapping[str, Any], shape: ModelShape) -> None:
        neuron = spec["neuron"]
        self.spec, self.shape = spec, shape
        self.dtype: str = neuron["torch_dtype"]
        self.batch: int = neuron["batch_size"]
        self.length: int = neuron["seq_len"]
        self.graphs: dict[str, Graph] = {}
        add = self._whole if spec["optlevel"] == "2" else self._regional
        buckets = sorted(set(neuron["token_generation_buckets"]))
        self.token = [add(TOKEN, self.batch, bucket) for bucket in buckets]
        buckets = sorted(set(neuron["context_encoding_buckets"]))
        self.context = [add(CONTEXT, 1, bucket) for bucket in buckets]

    def _whole(self, submodel: str, batch: int, bucket: int) -> dict[str, Any]:
        shape = self.shape
        layers = [layer_kind(shape, i, bucket) for i in range(shape.num_hidden_layers)]
        model = {"layers": layers, "edge": edge_kind(shape)}
        key = self._graph(submodel, "whole", batch, bucket, model)
        return {"bucket": bucket, "whole": key}

    def _regional(self, submodel: str, batch: int, bucket: int) -> dict[str, Any]:
        keys = []
        for index in range(self.shape.num_hidden_layers):
            kind = layer_kind(self.shape, index, bucket)
            keys.append(self._graph(submodel, "layer", batch, bucket, kind))
        # The edge of one row is the same in both submodels and is named after the first.
        edge = self._graph(
            CONTEXT if batch == 1 else TOKEN, "edge", batch, 1, edge_kind(self.shape)
        )
        return {"bucket": bucket, "layers": keys, "edge": edge}

    def _graph(
        self, submodel: str, region: str, batch: int, bucket: int, model: Mapping[str, Any]
    ) -> str:
        """The first 16 digits of the key: the graph's directory in a view."""
        cache = 0 if region == "edge" else self.length
        more = {} if submodel == CONTEXT or region == "edge" else {"slots": self.batch + 1}
        spec = graph_spec(
            submodel=submodel,
            region=region,
            batch=batch,
            bucket=bucket,
            cache_length=cache,
            model=model,
            dtype=self.dtype,
            target=self.spec["target"],
            toolchain=self.spec["toolchain"],
            optlevel=self.spec["optlevel"],
            **more,
        )
        key = spec_key(spec)
        if key not in self.graphs:
            name = f"{submodel} b{batch} {bucket} {region}"
            if model.get("sliding_window") is not None:
                name += f" window {model['sliding_window']}"
            if region == "edge":
                name = f"{submodel} b{batch} edge"
            self.graphs[key] = Graph(submodel, region, batch, bucket, cache, spec, key, name)
        return key[:16]
