"""What every command shares: the output and the settings."""

from __future__ import annotations

from collections.abc import Sequence

from neuroncompile.output import Output
from neuroncompile.settings import Settings, load_settings

__all__ = ["State"]


class State:
    """Made once by `main`, filled by the options that stand anywhere.

    Attributes:
        output: where words go.
        command: the command's name as the JSON document gives it.
    """

    def __init__(self, output: Output) -> None:
        self.output = output
        self.store: str | None = None
        self.offline = False

    @property
    def command(self) -> str:
        return self.output.command

    @command.setter
    def command(self, name: str) -> None:
        self.output.command = name

    def settings(
        self,
        *,
        jobs: int | None = None,
        toolchain: str | None = None,
        tiers: Sequence[str] | None = None,
        retry_failed: bool = False,
    ) -> Settings:
        """Resolved settings; what is wrong but not fatal is said once."""
        settings = load_settings(
            store=self.store,
            offline=self.offline,
            jobs=jobs,
            toolchain=toolchain,
            tiers=tiers or (),
            retry_failed=retry_failed,
        )
        for warning in settings.warnings:
            self.output.warn(warning)
        return settings
