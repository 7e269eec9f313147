"""Small real models on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.settings import HubSettings, Settings

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "torch_dtype": "float16",
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        store=tmp_path / "store",
        store_origin="test",
        offline=False,
        hub=HubSettings(endpoint="http://127.0.0.1:9", cache=tmp_path / "hub"),
        cache=tmp_path / "cache",
    )


@pytest.fixture
def write_model(tmp_path: Path) -> Callable[..., Path]:
    """Write a model directory: files → tensors (name → (shape, torch dtype name))."""

    def write(
        files: dict[str, dict[str, tuple[tuple[int, ...], str]]],
        *,
        name: str = "model",
        config: dict[str, Any] | None = None,
        index: bool = False,
    ) -> Path:
        import torch
        from safetensors.torch import save_file

        directory = tmp_path / name
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(CONFIG | (config or {})))
        for file, tensors in files.items():
            save_file(
                {t: torch.zeros(s, dtype=getattr(torch, d)) for t, (s, d) in tensors.items()},
                directory / file,
            )
        if index:
            table = {tensor: file for file, tensors in files.items() for tensor in tensors}
            (directory / "model.safetensors.index.json").write_text(
                json.dumps({"metadata": {}, "weight_map": table})
            )
        return directory

    return write
