"""The tiers of one command: read on a miss, nearest first; written by `--push`.

A tier that fails costs a warning and is not asked again by this command: the build goes on
without it. Only where a tier is the last hope (`--check`, `--require-cached`) is its failure
the command's. Nothing of `neuroncompile.tiers` is imported before a tier is needed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from neuroncompile.errors import CacheMissError, InterruptedBuildError, TierError, UsageError
from neuroncompile.output import Output, human_bytes, human_seconds
from neuroncompile.pipeline.progress import Transfer
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact, Store

if TYPE_CHECKING:
    from neuroncompile.tiers import Tier

__all__ = ["Found", "Tiers"]

_USERS_WORD = frozenset({"scheme", "url"})  # a misspelt URL is not a tier that fails


class Found(NamedTuple):
    """An artifact that a tier gave, and the tier's URL."""

    artifact: Artifact
    url: str


class Tiers:
    """The tiers that the settings name, in their order.

    Args:
        settings: `tiers`, `offline` and `tier_timeout` count.
        output: told what is pulled and pushed, and which tier fails.
        push: they will be pushed to; a directory tier is then made if it is not there.

    Raises:
        UsageError: `push` without a tier.
    """

    def __init__(self, settings: Settings, output: Output, *, push: bool = False) -> None:
        self._settings, self._output, self._push = settings, output, push
        self._open: dict[str, Tier] = {}
        self._failed: dict[str, TierError] = {}
        self._corrupt: dict[str, set[str]] = {}
        self._said = False
        self._transfer = Transfer(output)
        if push and not settings.tiers:
            raise UsageError(
                "--push needs a tier to push to",
                hint="add --tier URL, set NEURONCOMPILE_TIER, or give tiers = […] in the settings",
            )

    def __bool__(self) -> bool:
        return bool(self._settings.tiers)

    def pull(self, store: Store, kind: str, key: str) -> Found | None:
        """The artifact of a key, brought into the store from the nearest tier that has it."""
        from neuroncompile import tiers

        for tier in self._usable():
            began = time.monotonic()
            try:
                pulled = tiers.pull(
                    store,
                    tier,
                    kind,
                    key,
                    progress=self._transfer,
                    on_warning=self._output.warn,
                )
            except TierError as error:
                self._fails(tier.url, error)
                continue
            except KeyboardInterrupt:
                raise InterruptedBuildError(
                    f"interrupted while pulling from {tier.url}; what has come is kept in "
                    f"{store.root}",
                    hint="the same command goes on from there",
                ) from None
            if pulled is not None:
                took = human_seconds(time.monotonic() - began)
                self._output.note(
                    f"pulled {kind} {key[:12]} from {tier.url}: "
                    f"{human_bytes(pulled.size)} in {pulled.blobs} blobs, {took}"
                )
                return Found(pulled.artifact, tier.url)
        return None

    def having(self, store: Store, kind: str, key: str) -> str | None:
        """URL of the nearest tier from which the artifact could be pulled; nothing is moved."""
        from neuroncompile import tiers

        for tier in self._usable():
            try:
                remote = tiers.find(tier, kind, key)
                if remote is None:
                    continue
                absent = tiers.lacking(store, tier, remote)
            except tiers.BlobNotFoundError as error:
                self._output.warn(f"{kind} {key[:12]} is incomplete: {error}")
                continue
            except TierError as error:
                self._fails(tier.url, error)
                continue
            if not absent:
                return tier.url
            self._output.warn(
                f"{kind} {key[:12]} is incomplete: tier {tier.url} lacks {len(absent)} blobs"
            )
        return None

    def raise_failure(self) -> None:
        """If a tier has failed, its error: what was looked for might be there."""
        for error in self._failed.values():
            raise error

    def next_artifact(self) -> None:
        """Of a command that asks for several: forget what was wrong with the last one's bytes.

        A tier that does not answer stays given up.
        """
        failed = self._failed.items()
        self._failed = {n: e for n, e in failed if e.details.get("class") != "corrupt"}

    def miss(self, what: str, key: str, hint: str) -> CacheMissError:
        """The error for what is neither in the store nor in a tier.

        Raises:
            TierError: instead, if a tier that might have it has failed.
        """
        self.raise_failure()
        store = self._settings.store
        places = ", ".join([f"{store} ({self._settings.store_origin})", *self.asked])
        return CacheMissError(
            f"{what} not in {places}",
            hint=hint,
            details={"key": key, "store": str(store), "tiers": self.asked},
        )

    @property
    def asked(self) -> list[str]:
        """URLs of the tiers that count."""
        return [url for url in self._settings.tiers if url not in self.skipped]

    @property
    def skipped(self) -> list[str]:
        """Tiers that `--offline` leaves out."""
        return [url for url in self._settings.tiers if self._settings.offline and _is_network(url)]

    def push(self, store: Store, artifacts: Iterable[Artifact]) -> list[str]:
        """Bring the artifacts into every tier; the URLs of the tiers.

        Raises:
            TierError: a tier fails; the artifacts stay in the store.
        """
        from neuroncompile import tiers

        wanted, urls = list(artifacts), []
        for url in self._settings.tiers:
            if url in self.skipped:
                raise self._not_pushed(
                    TierError(f"tier {url}: --offline forbids to push", details={"class": "url"})
                )
            try:
                tier = self._opened(url)
                began, blobs, size, named = time.monotonic(), 0, 0, 0
                for artifact in wanted:
                    pushed = tiers.push(
                        store,
                        tier,
                        artifact,
                        repair=self._corrupt.get(tier.url, ()),
                        progress=self._transfer,
                    )
                    blobs, size = blobs + pushed.blobs, size + pushed.size
                    named += pushed.named
            except TierError as error:
                raise self._not_pushed(error) from None
            except KeyboardInterrupt:
                raise InterruptedBuildError(
                    f"interrupted while pushing to {url}; what was built is kept in {store.root}",
                    hint="the same command pushes what is not there yet",
                ) from None
            if named or blobs:
                took = human_seconds(time.monotonic() - began)
                self._output.note(
                    f"pushed {named} of {len(wanted)} artifacts to {tier.url}: "
                    f"{human_bytes(size)} in {blobs} blobs, {took}"
                )
            else:
                self._output.note(f"{tier.url} has all {len(wanted)} artifacts already")
            urls.append(tier.url)
        return urls

    def close(self) -> None:
        """Give up connections."""
        for tier in self._open.values():
            tier.close()
        self._open.clear()

    # ---- inside

    def _usable(self) -> Iterable[Tier]:
        if self.skipped and not self._said:
            self._output.note(f"offline: {', '.join(self.skipped)} is not asked")
            self._said = True
        for url in self.asked:
            if url in self._failed:
                continue
            try:
                tier = self._opened(url)
            except TierError as error:
                if error.details.get("class") in _USERS_WORD:
                    raise
                self._fails(url, error)
                continue
            if tier.url not in self._failed:
                yield tier

    def _opened(self, url: str) -> Tier:
        if url not in self._open:
            from neuroncompile.tiers import open_tier

            timeout = self._settings.tier_timeout
            self._open[url] = open_tier(url, timeout=timeout, create=self._push)
        return self._open[url]

    def _fails(self, url: str, error: TierError) -> None:
        if error.details.get("class") == "corrupt":  # this artifact's fault, not the tier's
            if digest := error.details.get("digest"):
                self._corrupt.setdefault(url, set()).add(str(digest))
            self._failed.setdefault(f"{url}#{error.details.get('digest')}", error)
        else:
            self._failed[url] = error
        self._output.warn(f"{error}; going on without it")

    def _not_pushed(self, error: TierError) -> TierError:
        return TierError(
            f"{error}; what was built is kept in {self._settings.store}",
            hint=f"{error.hint}; then run the same command with --push again"
            if error.hint
            else "run the same command with --push again",
            details=error.details,
        )


def _is_network(url: str) -> bool:
    return not url.lower().startswith("file:")
