"""The modelling code that is exported: one decoder layer, the edge, or all of them.

Written for export: static shapes, host-made rotary tables, the key-value cache as plain inputs
that are written in place. Parameters carry Hugging Face's names and stay outside the compiled
object; whatever dtype they have, arithmetic is in float32.

Shapes: B rows, T tokens a row, H hidden size, N query heads, K key-value heads, D head size,
L cache positions, S slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

__all__ = ["DTYPES", "Edge", "Layer", "Whole", "linear"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

STREAMED_ROWS = 8
"""Up to how many rows a product streams the weight once; above, it calls the GEMM."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias` in float32; x [..., in], weight [out, in].

    A product of few rows is bound by reading the weight. Written as a sum it becomes one loop
    that reads each weight once, in its own dtype, where MKL's call is half as fast and needs a
    float32 copy. Rows are the inner axis of the result, so a weight's row stays in the nearest
    cache while all rows use it.
    """
    rows = x.numel() // x.shape[-1]
    if rows > STREAMED_ROWS:
        return F.linear(x, weight.float(), None if bias is None else bias.float())
    flat = stored(x.reshape(rows, x.shape[-1]))
    y = (weight.float()[:, None] * flat).sum(-1).t()
    if bias is not None:
        y = y + bias.float()
    return y.reshape(*x.shape[:-1], weight.shape[0])


def stored(x: Tensor) -> Tensor:
    """`x` in memory: by itself Inductor repeats what made it for every weight row that reads it."""
    x = x.contiguous()
    return torch.as_strided(x, x.shape, x.stride())


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight.float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding; x [B, T, heads, D], cos and sin [B, T, D/2]."""
    cos, sin = cos[:, :, None], sin[:, :, None]
    low, high = x.chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


class Linear(nn.Module):
    def __init__(self, inputs: int, outputs: int, bias: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = _parameter(dtype, outputs, inputs)
        self.bias = _parameter(dtype, outputs) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight, self.eps = _parameter(dtype, size), eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class Attention(nn.Module):
    """Grouped-query attention over one layer's cache."""

    def __init__(self, kind: Mapping[str, Any], bucket: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.kv_heads = kind["num_attention_heads"], kind["num_key_value_heads"]
        self.head_dim, self.bucket = kind["head_dim"], bucket
        self.window: int | None = kind["sliding_window"]
        hidden, qkv_bias = kind["hidden_size"], kind["qkv_bias"]
        self.q_proj = Linear(hidden, self.heads * self.head_dim, qkv_bias, dtype)
        self.k_proj = Linear(hidden, self.kv_heads * self.head_dim, qkv_bias, dtype)
        self.v_proj = Linear(hidden, self.kv_heads * self.head_dim, qkv_bias, dtype)
        self.o_proj = Linear(self.heads * self.head_dim, hidden, kind["o_bias"], dtype)
        if kind["qk_norm"]:
            eps = float(kind["rms_norm_eps"])
            self.q_norm = RMSNorm(self.head_dim, eps, dtype)
            self.k_norm = RMSNorm(self.head_dim, eps, dtype)
        self.qk_norm = bool(kind["qk_norm"])

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, T, N, D], keys and values [B, T, K, D], rotated."""
        rows, tokens = x.shape[:2]
        q = self.q_proj(x).reshape(rows, tokens, self.heads, self.head_dim)
        k = self.k_proj(x).reshape(rows, tokens, self.kv_heads, self.head_dim)
        v = self.v_proj(x).reshape(rows, tokens, self.kv_heads, self.head_dim)
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def encode(
        self, x: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor
    ) -> Tensor:
        """A prompt of T = bucket tokens from position 0; caches [B, K, L, D] get all T.

        Padding needs no mask: it lies to the right, where no real token looks, and a later
        step overwrites its cache positions before it reads them.
        """
        rows, tokens = x.shape[:2]
        q, k, v = (t.transpose(1, 2) for t in self.project(x, cos, sin))
        k_cache[:, :, :tokens] = k
        v_cache[:, :, :tokens] = v
        windowed = self.window is not None and self.window < tokens
        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=self._band(tokens) if windowed else None,
            is_causal=not windowed,
            enable_gqa=True,
        )
        return self.output(y.transpose(1, 2).reshape(rows, tokens, self.heads * self.head_dim))

    def step(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        positions: Tensor,
        seq_ids: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
    ) -> Tensor:
        """One token a row; caches [S, K, L, D].

        Row b reads slot b and writes slot seq_ids[b]: b itself, or the scratch slot when the
        row only fills up the batch. Reading by number would copy the cache.
        """
        rows = x.shape[0]
        q, k, v = (t[:, 0] for t in self.project(x, cos, sin))
        k_cache[seq_ids, :, positions] = k
        v_cache[seq_ids, :, positions] = v
        keys = k_cache[:rows, :, : self.bucket]
        values = v_cache[:rows, :, : self.bucket]
        groups = q.reshape(rows, self.kv_heads, self.heads // self.kv_heads, self.head_dim)
        scores = (groups[:, :, :, None] * keys[:, :, None]).sum(-1) * self.head_dim**-0.5
        cached = torch.arange(self.bucket)
        seen = cached <= positions[:, None]
        if self.window is not None and self.window < self.bucket:
            seen = seen & (cached > positions[:, None] - self.window)
        scores = scores.masked_fill(~seen[:, None, None], float("-inf"))
        weights = scores.softmax(-1)
        y = (weights[..., None] * values[:, :, None]).sum(-2)
        return self.output(y.reshape(rows, 1, self.heads * self.head_dim))

    def output(self, y: Tensor) -> Tensor:
        projected: Tensor = self.o_proj(y)
        return projected

    def _band(self, tokens: int) -> Tensor:
        token = torch.arange(tokens)
        distance = token[:, None] - token
        assert self.window is not None
        return (distance >= 0) & (distance < self.window)


class MLP(nn.Module):
    def __init__(self, kind: Mapping[str, Any], dtype: torch.dtype) -> None:
        super().__init__()
        hidden, inner, bias = kind["hidden_size"], kind["intermediate_size"], kind["mlp_bias"]
        self.gate_proj = Linear(hidden, inner, bias, dtype)
        self.up_proj = Linear(hidden, inner, bias, dtype)
        self.down_proj = Linear(inner, hidden, bias, dtype)
        self.act = ACTIVATIONS[kind["hidden_act"]]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))
        return y


class Layer(nn.Module):
    """One decoder layer of one kind at one bucket; see `program.layer_kinds`."""

    def __init__(self, kind: Mapping[str, Any], bucket: int, dtype: torch.dtype) -> None:
        super().__init__()
        eps = float(kind["rms_norm_eps"])
        self.input_layernorm = RMSNorm(kind["hidden_size"], eps, dtype)
        self.self_attn = Attention(kind, bucket, dtype)
        self.post_attention_layernorm = RMSNorm(kind["hidden_size"], eps, dtype)
        self.mlp = MLP(kind, dtype)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, *rest: Tensor) -> Tensor:
        """`rest` is (k, v) to encode a prompt, (positions, seq_ids, k, v) for a step."""
        normed = self.input_layernorm(x)
        attention = self.self_attn.encode if len(rest) == 2 else self.self_attn.step
        x = x + attention(normed, cos, sin, *rest)
        y: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return y.contiguous()  # what the next call was compiled for, whatever `linear` left


class Edge(nn.Module):
    """Final norm and head: x [B, H] → logits [B, vocabulary]."""

    def __init__(self, kind: Mapping[str, Any], dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = RMSNorm(kind["hidden_size"], float(kind["rms_norm_eps"]), dtype)
        self.lm_head = Linear(kind["hidden_size"], kind["vocab_size"], False, dtype)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.lm_head(self.norm(x))
        return y.contiguous()  # the engine reads rows


class Whole(nn.Module):
    """All layers and the edge; logits of each row's token at `last` or of its only one."""

    def __init__(
        self,
        layers: Sequence[Mapping[str, Any]],
        edge: Mapping[str, Any],
        bucket: int,
        dtype: torch.dtype,
        encodes: bool,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(kind, bucket, dtype) for kind in layers)
        self.edge, self.encodes = Edge(edge, dtype), encodes

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, *rest: Tensor) -> Tensor:
        """`rest` is (last, k0, v0, k1, …) or (positions, seq_ids, k0, v0, k1, …)."""
        given, caches = (rest[:0], rest[1:]) if self.encodes else (rest[:2], rest[2:])
        for index, layer in enumerate(self.layers):
            x = layer(x, cos, sin, *given, caches[2 * index], caches[2 * index + 1])
        x = x[torch.arange(x.shape[0]), rest[0]] if self.encodes else x[:, 0]
        y: Tensor = self.edge(x)
        return y


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": _gelu_tanh,
}


def _parameter(dtype: torch.dtype, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape, dtype=dtype), requires_grad=False)
