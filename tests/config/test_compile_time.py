"""The rule for compile times, against everything that was measured."""

from __future__ import annotations

import math

import pytest

from neuroncompile.config.compile_time import (
    EXPONENT,
    HIGH,
    LOW,
    SECONDS,
    compile_minutes,
    pair_seconds,
)

MEASURED = """
AFM-4.5B-Base 4.6 1 588
Apertus-8B-Instruct-2509 8 2 360
ERNIE-4.5-0.3B-PT 0.36 1 134
EXAONE-4.0-1.2B 1.28 1 453
Falcon-H1-0.5B-Instruct 0.52 2 358
Janus-1.3B 1.3 1 264
Llama-2-7b-hf 6.7 2 362
MiniCPM4-8B 8.2 2 275
Ministral-4b-instruct 3.8 2 254
Mistral-Small-3.1-24B-Instruct-2503 24 8 385
Mixtral-8x7B-Instruct-v0.1 46.7 8 1208
OLMo-2-0425-1B-Instruct 1.5 2 96
OLMo-2-1124-7B 7.3 8 370
OLMo-3-7B-Think 7.3 2 226
Ovis2.5-9B 8.2 2 413
Phi-3-mini-4k-instruct 3.8 1 834
Phi-3.5-MoE-instruct 41.9 8 1333
Phi-3.5-mini-instruct 3.8 2 236
Qwen2-7B-Instruct 7.6 2 426
Qwen2.5-Omni-7B 7.6 2 332
Qwen2.5-VL-32B-Instruct 32.5 2 952
Qwen2.5-VL-3B-Instruct 3.1 2 225
Qwen3-0.6B 0.6 2 125
Qwen3-VL-8B-Thinking 8.2 2 318
Seed-OSS-36B-Instruct 36 8 1007
SmolLM3-3B 3.1 2 267
biogpt 0.35 1 98
c4ai-command-r7b-12-2024 8 8 168
falcon-7b 7 2 559
gemma-2b-it 2.5 1 317
gemma-3-1b-it 1 1 253
glm-4-9b-chat-hf 9.4 2 877
gpt2 0.124 2 41
gpt_bigcode-santacoder 1.1 1 109
granite-3.1-8b-instruct 8.2 2 318
helium-1-2b 2 2 194
hunyuan-7b-instruct 7.5 8 269
idefics-9b-instruct 9 2 755
internlm3-8b-instruct 8.8 2 276
lfm2-2.6b 2.6 1 682
llava-v1.5-7b 7 2 366
opt-1.3b 1.3 1 74
orion-14b-chat 14.5 8 522
persimmon-8b-base 9.4 8 296
phi-1_5 1.4 2 173
pythia-2.8b 2.8 2 241
recurrentgemma-2b-it 2.7 2 133
stablelm-2-1_6b 1.6 2 174
starcoder2-3b 3 1 355
vaultgemma-1b 1 1 194
xglm-564M 0.56 1 108
"""
"""Model, billions of parameters, tensor parallelism, seconds for one context-encoding and one
token-generation graph; trn1.32xlarge, bfloat16, batch 1 (READMEs of NxD Inference's
contrib/models; parameters from the model cards)."""

TABLE = [
    (name, float(billions), int(ranks), float(seconds))
    for name, billions, ranks, seconds in (line.split() for line in MEASURED.split("\n") if line)
]

LARGER = [  # not fitted: trn2, mixtures of experts
    ("DeepSeek-V3", 671, 64, 708),
    ("Trinity-Large", 398, 64, 516),
    ("Trinity-Mini", 26, 4, 294),
    ("Qwen3.5-35B-A3B", 35, 8, 900),
]


def within(billions: float, ranks: int, seconds: float) -> bool:
    return LOW <= seconds / pair_seconds(billions * 1e9, ranks) <= HIGH


def test_the_rule_is_the_least_squares_line() -> None:
    xs = [math.log(billions / ranks) for _, billions, ranks, _ in TABLE]
    ys = [math.log(seconds) for *_, seconds in TABLE]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum(
        (x - mx) ** 2 for x in xs
    )
    assert len(TABLE) == 51
    assert slope == pytest.approx(EXPONENT, abs=0.002)
    assert math.exp(my - slope * mx) == pytest.approx(SECONDS, rel=0.005)
    residuals = [y - my - slope * (x - mx) for x, y in zip(xs, ys, strict=True)]
    spread = math.exp(math.sqrt(sum(r * r for r in residuals) / (len(residuals) - 2)))
    assert spread == pytest.approx(1.6, abs=0.02)


def test_the_range_holds_what_it_says_it_holds() -> None:
    assert sum(within(b, r, s) for _, b, r, s in TABLE) == 48
    assert [name for name, b, r, s in LARGER if not within(b, r, s)] == ["Trinity-Mini"]


def test_graphs_in_rounds() -> None:
    """The first token-generation graph alone, then the others side by side."""
    two = compile_minutes(8e9, 8, 2, 1)
    assert two.typical == pytest.approx(pair_seconds(8e9, 8) / 60)
    assert two.low == pytest.approx(two.typical * 0.5)
    assert two.high == pytest.approx(two.typical * 3)
    assert compile_minutes(8e9, 8, 10, 1).typical == pytest.approx(5 * two.typical)
    assert compile_minutes(8e9, 8, 10, 9).typical == pytest.approx(two.typical)
    assert compile_minutes(8e9, 8, 10, 3).typical == pytest.approx(2 * two.typical)
    assert compile_minutes(8e9, 8, 1, 4).typical == pytest.approx(two.typical / 2)
    assert compile_minutes(8e9, 8, 0, 4).typical == 0
