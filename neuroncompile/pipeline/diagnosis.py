"""What surrounds one compile for Neuron: who compiles, how much at once, and what a failure is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from neuroncompile.backends.nxdi.backend import NxdiBackend
from neuroncompile.backends.nxdi.failures import Failure, bad_output, classify
from neuroncompile.backends.nxdi.process import (
    Limits,
    OrderFailed,
    OverLimit,
    WorkerEnded,
    identity_of,
)
from neuroncompile.errors import CompileError, ConfigError, ToolchainError
from neuroncompile.hardware.host import available_memory
from neuroncompile.output import Output, human_bytes
from neuroncompile.pipeline.plan import Plan
from neuroncompile.settings import Settings

__all__ = ["Diagnosis", "tail"]

SILENCE_SECONDS = 2 * 3600.0  # the longest healthy compile known said nothing for 48 minutes


class Diagnosis:
    """The compiler of a plan, and its words in order.

    Attributes:
        python: the toolchain's interpreter.
    """

    def __init__(self, plan: Plan, settings: Settings, output: Output) -> None:
        self.plan, self.settings, self.output = plan, settings, output
        self.python = NxdiBackend(plan.target.platform).interpreter(plan.toolchain.python)

    @cached_property
    def jobs(self) -> int:
        """Compilers at once; where memory is short for one, it is said here."""
        return self.settings.jobs or self._default_jobs()

    def limits(self) -> Limits:
        """When a compile is stopped."""
        return Limits(
            seconds=self.settings.time_limit,
            silence=SILENCE_SECONDS,
            memory=self.settings.memory_limit,
        )

    def check_toolchain(self) -> None:
        """Compiling with other versions than the key has would put a false name on the result.

        Raises:
            ToolchainError: with both.
        """
        asked = self.plan.toolchain.spec()
        installed = identity_of(self.python)
        if installed == asked:
            return
        within = all(
            installed.get(name, "").startswith(version.removesuffix("*").removesuffix("."))
            for name, version in asked.items()
        )
        text = "another toolchain was asked for than the interpreter holds"
        if within and any(version.endswith(".*") for version in asked.values()):
            text = "the toolchain asked for leaves versions open, and a key needs them exact"
        differ = sorted(
            name for name in {*asked, *installed} if asked.get(name) != installed.get(name)
        )
        told = "; ".join(
            f"{name} {asked.get(name, 'none')} asked, {installed.get(name, 'none')} here"
            for name in differ
        )
        raise ToolchainError(
            f"{text}: {told}",
            field="toolchain",
            value=installed,
            legal=asked,
            hint=f"neuroncompile toolchain freeze --python {self.python} -o sdk.toml, then build "
            "with --toolchain ./sdk.toml",
        )

    def check_nodes(self) -> None:
        """One host compiles all ranks: NxD's ranks of another host would have another program.

        Raises:
            ConfigError: only a part of the ranks is asked for.
        """
        config = self.plan.config
        world, local = config.get("world_size"), config.get("local_ranks_size")
        if world is not None and local is not None and local < world:
            raise ConfigError(
                f"local_ranks_size is {local} of world_size {world}: more than one node is not "
                "supported",
                field="local_ranks_size",
                value=local,
                legal=world,
                hint="leave local_ranks_size and start_rank_id out; choose a tp_degree that one "
                "instance has",
            )

    def of_graph(self, lines: list[str], graph: Mapping[str, Any]) -> Failure:
        """The failure of one graph, by its exception's text."""
        silent = next((line for line in lines if "reported success and left" in line), None)
        if silent is None and not any("No such file" in line and ".neff" in line for line in lines):
            return self._classify(lines, graph=graph)
        problem = silent.partition("success and ")[2] if silent else "has left no NEFF"
        return bad_output(
            problem,
            graph=graph,
            target=self.plan.target.platform,
            toolchain=self.plan.toolchain.spec(),
        )

    def of_program(self, error: OrderFailed | WorkerEnded | OverLimit, scratch: Path) -> Failure:
        """The failure of the whole worker, by its log."""
        if isinstance(error, OverLimit):
            return self._classify([str(error)], over=error.which)
        lines = tail(scratch / "compile.log")
        if isinstance(error, WorkerEnded):
            return self._classify(
                lines, exit_code=error.status, killed_for_memory=error.killed_for_memory
            )
        return self._classify([*lines, str(error.head.get("trace", ""))])

    def of_outputs(self, error: CompileError) -> Failure:
        """A compile that ended well and left what is not whole."""
        return bad_output(
            str(error.details["wrong"][0]),
            target=self.plan.target.platform,
            toolchain=self.plan.toolchain.spec(),
        )

    def refused(self, error: OrderFailed) -> ConfigError:
        """A keyword that NxDI drops or changes."""
        head = error.head
        return ConfigError(
            str(error),
            field=head.get("field"),
            value=head.get("value"),
            legal=head.get("legal"),
            hint=f"correct {head.get('field')} with --set, or name another --toolchain",
        )

    def _classify(
        self, lines: list[str], *, graph: Mapping[str, Any] | None = None, **how: Any
    ) -> Failure:
        return classify(
            lines,
            toolchain=self.plan.toolchain.spec(),
            target=self.plan.target.platform,
            graph=graph,
            **how,
        )

    def _default_jobs(self) -> int:
        """As many compilers as cores and free memory allow, by what one of them needs."""
        from neuroncompile.config.dimensions import dimensions_of
        from neuroncompile.config.host import compiler_bytes

        cores = len(os.sched_getaffinity(0))
        free = available_memory()
        if free is None:
            return cores
        need = compiler_bytes(
            dimensions_of(self.plan.model.config),
            self.plan.config.plain(),
            self.plan.target.platform,
        )
        if need > free:
            self.output.warn(
                f"one compiler may need {human_bytes(need)} and {human_bytes(free)} are free; "
                "it may be killed"
            )
        return max(1, min(cores, free // need))


def tail(log: Path, count: int = 400) -> list[str]:
    """The last lines of a log that say something."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]
