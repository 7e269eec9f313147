"""What a process of another kind does with a store: look up, lease, read, stay, go.

    python -m tests.faults.reader ROOT NUMBER [UID]

Says what it has, then waits for a line on its standard input, reads again, and says what it has.
"""

from __future__ import annotations

import atexit  # noqa: F401  with what follows: before we may read nothing but the store
import os
import shutil  # noqa: F401
import sys
import tempfile  # noqa: F401
from pathlib import Path

import neuroncompile.store.gc
import neuroncompile.store.leases  # noqa: F401
from neuroncompile.store import Store
from tests.faults.world import KIND, files, key, read


def main() -> None:
    root, number = Path(sys.argv[1]), int(sys.argv[2])
    if len(sys.argv) > 3:
        os.setgroups([])
        os.setgid(int(sys.argv[3]))
        os.setuid(int(sys.argv[3]))
    warnings: list[str] = []
    store = Store(root, on_warning=warnings.append)
    artifact = store.lookup(KIND, key(number))
    if artifact is None:
        sys.stdout.write(f"miss {warnings}\n")
        return
    with store.lease(artifact) as view:
        for _ in range(2):
            whole = read(view, artifact) == files(number, "x")
            sys.stdout.write(f"{'whole' if whole else 'WRONG'} {warnings}\n")
            sys.stdout.flush()
            sys.stdin.readline()


if __name__ == "__main__":
    main()
