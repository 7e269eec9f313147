"""Many processes ask for one artifact at the same instant.

    python -m tests.faults.flight ROOT PROCESSES

Prints how many of them built it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from neuroncompile.store import Store
from tests.faults.world import KIND, key, quick


def ask(root: Path, built: int) -> None:
    store = Store(root)
    with store.single_flight(KIND, key(1)):
        if store.lookup(KIND, key(1)) is None:
            os.write(built, b"b")
            time.sleep(0.3)  # what takes minutes in life
            quick(store, 1)


def main() -> None:
    root, processes = Path(sys.argv[1]) / "store", int(sys.argv[2])
    built = os.open(root.with_name("built"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    gate, start = os.pipe()
    children = []
    for _ in range(processes):
        if (pid := os.fork()) == 0:
            os.close(start)
            os.read(gate, 1)  # until the last writer has closed it
            code = 1
            try:
                ask(root, built)
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    os.close(start)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    builds = root.with_name("built").stat().st_size
    sys.stdout.write(json.dumps({"builds": builds, "failed": sum(map(bool, codes))}))


if __name__ == "__main__":
    main()
