"""The runtime is thin: what it imports, and that the engines here keep the contract's form."""

from __future__ import annotations

import subprocess
import sys

from neuroncompile.runtime.engine import Engine
from tests.runtime.conftest import HistoryEngine


def test_neither_torch_nor_transformers_is_imported() -> None:
    program = (
        "import sys, pkgutil, importlib, neuroncompile.runtime as r\n"
        "names = [m.name for m in pkgutil.iter_modules(r.__path__, 'neuroncompile.runtime.')]\n"
        "for name in names: importlib.import_module(name)\n"
        "assert len(names) >= 9, names\n"
        "from neuroncompile.runtime.chat import render\n"
        "render('{{ messages | length }}', [], {})\n"
        "print(sorted({'torch', 'transformers', 'rich', 'typer'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_the_engine_of_these_tests_is_an_engine() -> None:
    engine: Engine = HistoryEngine()  # mypy checks the form
    engine.close()
