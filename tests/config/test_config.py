"""What a build that hits the store pays for."""

from __future__ import annotations

import subprocess
import sys

HIT = """
import sys
from neuroncompile.config import check_config, load_recipe, resolve_config, resolve_toolchain
recipe = load_recipe("smollm2-135m")
config = resolve_config(
    model=recipe.facts, model_dtype="bfloat16", target=recipe.target, recipe=recipe, environ={}
)
toolchain = resolve_toolchain("cpu", recipe=recipe, identity={"torch": "2.13.0"})
check_config(config, model=recipe.facts, toolchain=toolchain)
config.rows()
print("\\n".join(sys.modules))
"""

HEAVY = """
torch transformers numpy pydantic rich asyncio urllib3 msgspec huggingface_hub difflib inspect
dataclasses importlib.metadata subprocess logging
neuroncompile.config.releases neuroncompile.config.windows
"""


def test_a_hit_imports_nothing_heavy() -> None:
    code = "import neuroncompile.settings, sys; before = set(sys.modules)\n" + HIT.replace(
        '"\\n".join(sys.modules)', '"\\n".join(set(sys.modules) - before)'
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(HEAVY.split()) & set(done.stdout.split())
