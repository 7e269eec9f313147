"""Every fault point of one operation, in one process that forks a child for each.

    LD_PRELOAD=shim.so python -m tests.faults.driver ROOT OPERATION FAULT

Prints one JSON object: the counts, and everything that was wrong.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroncompile.errors import StoreError
from tests.faults.operations import OPERATIONS, Operation
from tests.faults.world import WorkError, clone, survey, temporary

shim = ctypes.CDLL(None)
shim.shim_name.restype = ctypes.c_char_p

NONE, KILL, KILL_TORN, STOP, FAIL, FAIL_ON, SHORT_ON = range(7)
NEEDS_SPACE, SYNCS, FREES, MARKS, WRITES = 1, 2, 4, 8, 16
ANY = 31


@dataclass(frozen=True)
class Fault:
    """What happens at the n-th call, to which calls, and whether to all later ones as well."""

    action: int
    error: int = 0
    classes: int = ANY


FAULTS = {
    "kill": Fault(KILL),
    "torn": Fault(KILL_TORN, 0, WRITES),
    "ENOSPC": Fault(FAIL, errno.ENOSPC, NEEDS_SPACE | SYNCS),
    "full": Fault(FAIL_ON, errno.ENOSPC, NEEDS_SPACE),
    "quota": Fault(FAIL_ON, errno.EDQUOT, NEEDS_SPACE),
    "EIO": Fault(FAIL, errno.EIO),
    "dead": Fault(FAIL_ON, errno.EIO),
    "read-only": Fault(FAIL_ON, errno.EROFS),
    "short": Fault(SHORT_ON, 0, WRITES),
}


def in_child(work: Callable[[], Any]) -> tuple[Any, int]:
    """The result of `work` in a forked child, and the signal that ended it (0: none).

    The result is None after a signal, and a text that begins with `!` after an exception.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            answer = json.dumps(work())
        except BaseException:
            answer = json.dumps("!" + traceback.format_exc())
        shim.shim_disarm()
        with os.fdopen(writer, "w") as file:
            file.write(answer)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    _, status = os.waitpid(pid, 0)
    return (json.loads(text) if text else None), os.WTERMSIG(status) if status else 0


def acting(operation: Operation, root: Path, fault: Fault, n: int) -> Callable[[], Any]:
    """The act with the fault at its n-th call: how it ended and where the fault was."""

    def work() -> list[Any]:
        shim.shim_links(operation.link_error, operation.no_symlinks)
        where = str(root).encode()
        shim.shim_arm(where, n, fault.action, fault.error, fault.classes)
        try:
            operation.act(root)
            outcome = "done"
        except WorkError:
            outcome = "refused"
        except StoreError as error:
            outcome = "refused"
            if error.exit_code != 7 or not error.hint or str(root) not in str(error):
                outcome = f"!refused without help: {error!r} {error.hint!r}"
        except BaseException:
            outcome = "!" + traceback.format_exc()
        calls, name = shim.shim_count(), shim.shim_name().decode()
        shim.shim_disarm()
        return [outcome, calls, name]

    return work


class Run:
    """One operation under one kind of fault, at every point."""

    def __init__(self, operation: Operation, fault: Fault, parent: Path) -> None:
        self.operation = operation
        self.fault = fault
        self.parent = parent
        self.root = parent / "store"
        self.template = parent.with_name("template")
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.before: list[str] = []

    def blame(self, n: int, what: str) -> None:
        self.wrong.append(f"{self.operation.name} at call {n}: {what}")

    def child(self, n: int, doing: str, work: Callable[[], Any]) -> Any:
        answer, killed = in_child(work)
        if killed or (isinstance(answer, str) and answer.startswith("!")):
            self.blame(n, f"{doing}: signal {killed} {answer}")
            return None
        return answer

    def all_points(self) -> None:
        shutil.rmtree(self.template, ignore_errors=True)
        self.template.mkdir()
        self.operation.prepare(self.template / "store")
        n = 1
        while self.point(n) and self.fault.action != SHORT_ON:  # which is the same from any n on
            n += 1
        if not self.counts["faults"]:
            self.blame(0, "no call was ever counted")

    def point(self, n: int) -> bool:
        """False when the operation has no n-th call."""
        operation, root = self.operation, self.root
        shutil.rmtree(self.parent, ignore_errors=True)
        clone(self.template, self.parent)
        self.before = temporary(root)
        answer, killed = in_child(acting(operation, root, self.fault, n))
        if killed and killed != signal.SIGKILL:
            self.blame(n, f"died of signal {killed}")
        if not killed:
            outcome, calls, name = answer
            if n > calls:
                if outcome != "done":
                    self.blame(n, f"without a fault: {outcome}")
                self.counts["calls"] = calls
                return False
            if not name:
                return True  # a call that this fault does not touch
            self.counts[f"{name} failed"] += 1
            self.counts["refused" if outcome == "refused" else "survived"] += 1
            if outcome.startswith("!"):
                self.blame(n, f"{name}: {outcome}")
            if (
                name not in ("unlink", "rmdir")
                and self.fault.action == FAIL
                and (left := self.left_over())
            ):
                self.blame(n, f"{name} left {left} in tmp")
        self.counts["faults"] += 1
        self.settle(n)
        return True

    def left_over(self) -> list[str]:
        """New in `tmp`, but for what a killed or failing clean-up must leave."""
        ours = (".broken", ".work")
        found = set(temporary(self.root)) - set(self.before)
        return sorted(name for name in found if not name.endswith(ours))

    def settle(self, n: int) -> None:
        """After the fault: nothing is wrong, the repeated act succeeds, nothing is wrong."""
        for problem in self.child(n, "after the fault", self.settled) or ():
            self.blame(n, problem)

    def settled(self) -> list[str]:
        operation, root = self.operation, self.root
        maybe = {**operation.made, **operation.gone}
        found = survey(root, kept=operation.kept, maybe=maybe, damaged=operation.damaged)
        problems = [f"after the fault: {problem}" for problem in found]
        operation.act(root)
        if operation.after is not None:
            operation.after(root)
        found = survey(
            root,
            kept={**operation.kept, **operation.made},
            maybe=operation.gone if operation.damaged else {},
            damaged=operation.name == "lookup-quarantines",
            check=False,
        )
        return problems + [f"after the repeat: {problem}" for problem in found]


def main() -> None:
    parent, operation, fault = sys.argv[1:]
    gc.freeze()  # so that a forked child copies less
    run = Run(OPERATIONS[operation], FAULTS[fault], Path(parent).resolve() / "world")
    run.all_points()
    sys.stdout.write(json.dumps({"counts": run.counts, "wrong": run.wrong}))


if __name__ == "__main__":
    main()
