"""The Hub over the network: huggingface_hub's calls, and its errors in a user's words.

Imported only when something has to be asked of the network. No message is taken over from the
client: its texts name URLs, and a signed URL or a proxy's address can hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from neuroncompile.errors import (
    GatedModelError,
    ModelError,
    ModelNotFoundError,
    NetworkError,
    NeuronCompileError,
    NotCachedError,
    StoreError,
)
from neuroncompile.models.header import DTYPES
from neuroncompile.models.hub_cache import Commit, RepoFile, Repository
from neuroncompile.models.progress import Progress
from neuroncompile.settings import HubSettings

__all__ = ["HubClient"]

_SILENT = 60  # above logging.CRITICAL


class HubClient:
    """What is asked of the Hub about one repository.

    Every method raises ModelError or a subclass; NetworkError is worth trying again.
    """

    def __init__(self, repository: Repository, hub: HubSettings) -> None:
        from huggingface_hub import HfApi
        from huggingface_hub.utils import logging

        from neuroncompile import __version__

        logging.set_verbosity(_SILENT)  # its warnings go to stderr and name URLs
        self._repository = repository
        self._hub = hub
        self._api = HfApi(
            endpoint=hub.endpoint,
            token=hub.token or False,  # never one it finds by itself
            library_name="neuroncompile",
            library_version=__version__,
        )

    def commit(self, revision: str) -> Commit:
        """The commit a revision is at now, with its files; one request."""
        with self._explained(revision):
            info = self._api.model_info(
                self._repository.name, revision=revision, files_metadata=True
            )
            if info.sha is None or info.siblings is None:
                raise _NotAHubError
            files = {}
            for file in info.siblings:
                digest = file.lfs.sha256 if file.lfs else None
                files[file.rfilename] = RepoFile(file.size or 0, file.blob_id, digest)
            return Commit(info.sha, files)

    def dtype(self, sha: str, name: str) -> str | None:
        """The dtype most bytes of a safetensors file have, from its header alone."""
        with self._explained(sha):
            header = self._api.parse_safetensors_file_metadata(
                self._repository.name, name, revision=sha
            )
        sizes: dict[str, int] = {}
        for tensor in header.tensors.values():
            begin, end = tensor.data_offsets
            if tensor.dtype in DTYPES:
                sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + end - begin
        return DTYPES[max(sorted(sizes), key=sizes.__getitem__)] if sizes else None

    def download(self, sha: str, name: str, progress: Progress | None = None) -> Path:
        """Fetch one file of a commit into the cache; its path in the snapshot."""
        with self._explained(sha):
            return Path(
                self._api.hf_hub_download(
                    self._repository.name,
                    name,
                    revision=sha,
                    cache_dir=self._repository.cache,
                    tqdm_class=_bar(name, progress),
                )
            )

    @contextmanager
    def _explained(self, revision: str) -> Iterator[None]:
        try:
            yield
        except NeuronCompileError:
            raise
        except Exception as error:
            # `from None`: a traceback with the client's own text could show a token
            raise self._error(error, revision) from None

    def _error(self, error: BaseException, revision: str) -> NeuronCompileError:
        names = {cls.__name__ for cls in type(error).__mro__}
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", None)
        if "OfflineModeIsEnabled" in names:
            return NotCachedError(
                f"{self._repository.name} is not in the cache, and HF_HUB_OFFLINE is set",
                hint="unset HF_HUB_OFFLINE",
            )
        if status is not None:
            wait = str(getattr(response, "headers", {}).get("retry-after", ""))
            return self._refused(int(status), names, revision, wait if wait.isdigit() else None)
        if "LocalEntryNotFoundError" in names and error.__cause__ is not None:
            return self._error(error.__cause__, revision)
        if "TransportError" in names or isinstance(error, ConnectionError):
            return self._unreachable(error, names)
        if isinstance(error, OSError) and error.errno is not None:
            return StoreError(
                f"cannot write to {self._repository.cache}: {error.strerror}",
                hint="free some space there, or name another place in HF_HUB_CACHE",
                details={"path": str(self._repository.cache)},
            )
        if isinstance(error, OSError) and "FileMetadataError" not in names:
            return NetworkError(
                f"the download of {self._repository.name} ended early",
                hint="run the command again; what is complete is kept",
            )
        return NetworkError(
            f"{self._endpoint()} does not answer as a Hugging Face Hub",
            hint="check HF_ENDPOINT, and whether a proxy answers in its place",
            details={"endpoint": self._endpoint()},
        )

    def _refused(self, status: int, names: set[str], revision: str, wait: str | None) -> ModelError:
        name, token = self._repository.name, self._hub.token
        details = {"repository": name, "revision": revision, "status": status}
        if "GatedRepoError" in names:
            page = f"{self._endpoint()}/{name}"
            return GatedModelError(
                f"{name} is gated, and "
                + ("this token's account has no access" if token else "no token was given"),
                hint=f"ask for access at {page}"
                + ("" if token else ", then set HF_TOKEN to a token of that account"),
                details=details,
            )
        if "RevisionNotFoundError" in names:
            return ModelNotFoundError(
                f"{name} has no revision {revision}",
                hint=f"look at {self._endpoint()}/{name}/tree/main for branches and tags",
                details=details,
            )
        if "EntryNotFoundError" in names:
            return ModelNotFoundError(
                f"a file of {name} at {revision[:12]} is no longer there",
                hint="run the command again",
                details=details,
            )
        if status == 401 and token:
            return GatedModelError(
                f"{self._endpoint()} refuses the token: it is wrong or has expired",
                hint="set HF_TOKEN to a valid token, or unset it for a public model",
                details=details,
            )
        if status == 401:
            return ModelNotFoundError(
                f"no public repository {name} on {self._endpoint()}",
                hint="check the spelling; if it is private, set HF_TOKEN",
                details=details,
            )
        if status == 403:
            return GatedModelError(
                f"{name} exists, but access to it is forbidden"
                + ("; this token may not read it" if token else ""),
                hint="use a token with read permission for this repository",
                details=details,
            )
        if status == 404:
            return ModelNotFoundError(
                f"no repository {name} on {self._endpoint()}",
                hint="check the spelling of org/name"
                + ("; if it is private, the token's account must have access" if token else ""),
                details=details,
            )
        if status == 429:
            return NetworkError(
                f"{self._endpoint()} limits requests from here",
                hint=f"wait {f'{wait} seconds' if wait else 'a few minutes'}; requests with "
                "HF_TOKEN have a higher limit",
                details={**details, "retry_after": int(wait) if wait else None},
            )
        return NetworkError(
            f"{self._endpoint()} fails with status {status}",
            hint="try again later, or use what is in the cache with --offline",
            details=details,
        )

    def _unreachable(self, error: BaseException, names: set[str]) -> NetworkError:
        text = str(error).lower()
        if "TimeoutException" in names:
            reason = "no answer in time"
        elif "ProxyError" in names:
            reason = "the proxy refuses the connection"
        elif "name or service" in text or "name resolution" in text or "nodename" in text:
            reason = "its name cannot be resolved"
        elif "refused" in text:
            reason = "connection refused"
        elif "certificate" in text or "ssl" in text:
            reason = "its certificate is not trusted"
        else:
            reason = "the connection broke"
        return NetworkError(
            f"{self._endpoint()} cannot be reached: {reason}",
            hint="check the network and HF_ENDPOINT, or use what is in the cache with --offline",
            details={"endpoint": self._endpoint(), "reason": reason},
        )

    def _endpoint(self) -> str:
        return re.sub(r"//[^/@]*@", "//", self._hub.endpoint)


class _NotAHubError(Exception):
    """The answer lacks what every Hub sends."""


def _bar(name: str, progress: Progress | None) -> Any:
    """A tqdm class that draws nothing and tells `progress` instead."""
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc, type-arg, unused-ignore]
        made = 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._done = int(kwargs.get("initial") or 0)
            self._total = kwargs.get("total")
            # a Xet download has a second bar, of the bytes that its first one is made from
            self._first, Bar.made = Bar.made == 0, Bar.made + 1
            super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call, unused-ignore]

        def update(self, n: float | None = 1) -> None:
            self._done += int(n or 0)
            if progress is not None and self._first:
                progress(f"downloading {name}", self._done, self._total)

    return Bar
