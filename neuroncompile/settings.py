"""Where things are and who we are: flags, environment and one file, resolved once.

Precedence for every value: flag, then environment, then the settings file, then default.
The settings file is `$XDG_CONFIG_HOME/neuroncompile/settings.toml` (`~/.config/…`), with the
keys of `FILE_KEYS`. Every command takes the same `Settings`, so `build`, `run` and `store`
can never look into different stores.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from neuroncompile.errors import ConfigError, UsageError, nearest

__all__ = [
    "ENVIRONMENT",
    "FILE_KEYS",
    "HubSettings",
    "Settings",
    "load_settings",
    "without_settings",
]

LOCK = "neuroncompile.lock"
ENVIRONMENT = {
    "NEURONCOMPILE_STORE": "directory of the artifact store",
    "NEURONCOMPILE_LAYERS": "read-only stores below it, separated as in PATH",
    "NEURONCOMPILE_JOBS": "how many compilers may run at once",
    "NEURONCOMPILE_TOOLCHAIN": "toolchain name or frozen file, as --toolchain",
    "NEURONCOMPILE_LOCK": "lock file instead of neuroncompile.lock in the working directory",
    "NEURONCOMPILE_NEURON_PYTHON": "interpreter with the Neuron SDK, if the toolchain names none",
    "NEURONCOMPILE_TIME_LIMIT": "seconds that compiling one program for Neuron may take",
    "NEURONCOMPILE_MEMORY_LIMIT": "GB of memory that its compilers may hold together",
    "NEURONCOMPILE_TIER": "tiers as --tier, separated by commas or spaces",
    "NEURONCOMPILE_TIER_TIMEOUT": "seconds without a byte before a tier is given up",
    "NEURONCOMPILE_SETTINGS": "settings file instead of the default one",
}
"""Variables of ours that are read; any other NEURONCOMPILE_* is reported as misspelt."""

FILE_KEYS = {
    "store": str,
    "layers": list,
    "jobs": int,
    "toolchain": str,
    "neuron_python": str,
    "time_limit": int,
    "memory_limit": int,
    "offline": bool,
    "tiers": list,
    "tier_timeout": int,
}


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Hugging Face Hub access, from the variables its own client reads."""

    endpoint: str
    cache: Path
    token: str | None = field(default=None, repr=False)  # never printed, logged or stored


@dataclass(frozen=True, slots=True)
class Settings:
    """One process's resolved settings.

    Attributes:
        store: root directory of the store (holds `v1/`, `models/`, `inputs/`).
        store_origin: where `store` came from, in words for a person.
        offline: no network at all.
        hub: Hugging Face Hub access.
        cache: directory for what this machine can make again; the store's default place.
        jobs: parallel compilers, or None for one per available core.
        toolchain: toolchain name or file from the environment or the settings file.
        neuron_python: interpreter with the Neuron SDK, for a toolchain that names none.
        lock: the lock file, whether it exists or not.
        time_limit: seconds that compiling one program for Neuron may take; None for no limit.
        memory_limit: bytes that its compilers may hold; None for what the host has.
        layers: roots of stores that are only read, in the order they are asked after `store`.
        tiers: URLs of the tiers, nearest first.
        retry_failed: ask a compiler again for what it has rejected within the last day.
        tier_timeout: seconds without a byte before a tier is given up; None for the default.
        warnings: what was wrong but not fatal (misspelt variables).
    """

    store: Path
    store_origin: str
    offline: bool
    hub: HubSettings
    cache: Path
    jobs: int | None = None
    toolchain: str | None = None
    layers: tuple[Path, ...] = ()
    tiers: tuple[str, ...] = ()
    tier_timeout: float | None = None
    retry_failed: bool = False
    neuron_python: str | None = None
    lock: Path = Path(LOCK)
    time_limit: float | None = None
    memory_limit: int | None = None
    warnings: tuple[str, ...] = ()


def load_settings(
    *,
    store: str | Path | None = None,
    offline: bool = False,
    jobs: int | None = None,
    toolchain: str | None = None,
    tiers: Sequence[str] = (),
    retry_failed: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Resolve settings from flags, the environment and the settings file.

    Raises:
        UsageError: the settings file is malformed or has an unknown key.
        ConfigError: a value is not legal (`jobs` below 1, a timeout that is no number above 0).
    """
    env = os.environ if environ is None else environ
    file = _settings_file(env)
    root, origin = _store_root(store, env, file)
    jobs = _jobs(jobs, env, file)
    return Settings(
        store=root,
        store_origin=origin,
        offline=offline or _truthy(env.get("HF_HUB_OFFLINE")) or bool(file.get("offline", False)),
        hub=_hub(env),
        cache=_cache(env)[0],
        jobs=jobs,
        toolchain=toolchain or env.get("NEURONCOMPILE_TOOLCHAIN") or _text(file.get("toolchain")),
        layers=_layers(env, file),
        tiers=_tiers(tiers, env, file),
        tier_timeout=_tier_timeout(env, file),
        retry_failed=retry_failed,
        neuron_python=env.get("NEURONCOMPILE_NEURON_PYTHON") or _text(file.get("neuron_python")),
        lock=Path(env.get("NEURONCOMPILE_LOCK") or LOCK),
        time_limit=_limit("time_limit", env, file),
        memory_limit=_bytes(_limit("memory_limit", env, file)),
        warnings=tuple(_misspelt(env)),
    )


def without_settings(store: str | Path | None = None, *, offline: bool = False) -> Settings:
    """Settings of a user who has set nothing of ours: what is left when they cannot be read."""
    foreign = {k: v for k, v in os.environ.items() if not k.startswith("NEURONCOMPILE_")}
    return load_settings(
        store=store, offline=offline, environ={**foreign, "XDG_CONFIG_HOME": os.devnull}
    )


def _store_root(
    flag: str | Path | None, env: Mapping[str, str], file: Mapping[str, object]
) -> tuple[Path, str]:
    if flag:
        return Path(flag).expanduser().absolute(), "--store"
    if env.get("NEURONCOMPILE_STORE"):
        return Path(env["NEURONCOMPILE_STORE"]).expanduser().absolute(), "NEURONCOMPILE_STORE"
    if file.get("store"):
        return Path(str(file["store"])).expanduser().absolute(), "settings file"
    return _cache(env)


def _layers(env: Mapping[str, str], file: Mapping[str, object]) -> tuple[Path, ...]:
    """Stores below; one that is not there is an error, as a missing mount would be missed late."""
    named = env.get("NEURONCOMPILE_LAYERS")
    given = named.split(os.pathsep) if named else file.get("layers") or []
    layers = []
    for text in given if isinstance(given, list) else []:
        if not isinstance(text, str) or not text:
            continue
        layer = Path(text).expanduser().absolute()
        if not layer.is_dir():
            raise ConfigError(
                f"the store layer {layer} is not a directory",
                field="layers",
                value=str(layer),
                legal="existing directories",
                hint="mount it, or correct NEURONCOMPILE_LAYERS"
                if named
                else "mount it, or correct `layers` in the settings file",
            )
        layers.append(layer)
    return tuple(layers)


def _cache(env: Mapping[str, str]) -> tuple[Path, str]:
    if env.get("XDG_CACHE_HOME"):
        return Path(env["XDG_CACHE_HOME"]).absolute() / "neuroncompile", "XDG_CACHE_HOME"
    return _home(env) / ".cache" / "neuroncompile", "default"


def _jobs(flag: int | None, env: Mapping[str, str], file: Mapping[str, object]) -> int | None:
    value: object = flag if flag is not None else env.get("NEURONCOMPILE_JOBS") or file.get("jobs")
    if value is None:
        return None
    try:
        jobs = int(str(value))
    except ValueError:
        jobs = 0
    if jobs < 1:
        raise ConfigError(
            f"jobs is {value!r}; it must be a whole number of at least 1",
            field="jobs",
            value=value,
            legal=">= 1",
            hint="use --jobs N or unset NEURONCOMPILE_JOBS",
        )
    return jobs


def _limit(name: str, env: Mapping[str, str], file: Mapping[str, object]) -> float | None:
    variable = f"NEURONCOMPILE_{name.upper()}"
    value: object = env.get(variable) or file.get(name)
    if value is None:
        return None
    try:
        limit = float(str(value))
    except ValueError:
        limit = 0.0
    if not 0 < limit < float("inf"):
        raise ConfigError(
            f"{name} is {value!r}; it must be a number above 0",
            field=name,
            value=value,
            legal="> 0",
            hint=f"correct or unset {variable}",
        )
    return limit


def _bytes(gigabytes: float | None) -> int | None:
    return None if gigabytes is None else int(gigabytes * 1e9)


def _tiers(
    flags: Sequence[str], env: Mapping[str, str], file: Mapping[str, object]
) -> tuple[str, ...]:
    named: object = flags or env.get("NEURONCOMPILE_TIER", "").replace(",", " ").split()
    found = named or file.get("tiers") or ()
    assert isinstance(found, Sequence)
    return tuple(dict.fromkeys(str(url) for url in found))


def _tier_timeout(env: Mapping[str, str], file: Mapping[str, object]) -> float | None:
    value = env.get("NEURONCOMPILE_TIER_TIMEOUT") or file.get("tier_timeout")
    if value is None:
        return None
    try:
        seconds = float(str(value))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 86400:
        raise ConfigError(
            f"the tiers' timeout is {value!r}; it must be a number of seconds above 0",
            field="tier_timeout",
            value=value,
            legal="> 0",
            hint="correct or unset NEURONCOMPILE_TIER_TIMEOUT",
        )
    return seconds


def _hub(env: Mapping[str, str]) -> HubSettings:
    home = env.get("HF_HOME")
    if not home:
        home = str(Path(env.get("XDG_CACHE_HOME") or _home(env) / ".cache") / "huggingface")
    root = Path(home).expanduser()
    cache = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE") or str(root / "hub")
    token = env.get("HF_TOKEN") or env.get("HUGGING_FACE_HUB_TOKEN") or None
    if token is None and not _truthy(env.get("HF_HUB_DISABLE_IMPLICIT_TOKEN")):
        path = Path(env.get("HF_TOKEN_PATH") or root / "token")
        try:
            token = path.read_text().strip() or None
        except OSError:
            token = None
    return HubSettings(
        endpoint=(env.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/"),
        cache=Path(cache).expanduser(),
        token=token.strip() if token else None,
    )


def _settings_file(env: Mapping[str, str]) -> dict[str, object]:
    if env.get("NEURONCOMPILE_SETTINGS"):
        path, required = Path(env["NEURONCOMPILE_SETTINGS"]).expanduser(), True
    else:
        base = env.get("XDG_CONFIG_HOME")
        root = Path(base) if base else _home(env) / ".config"
        path, required = root / "neuroncompile" / "settings.toml", False
    try:
        raw = path.read_bytes()
    except OSError as error:
        if required:
            raise UsageError(
                f"settings file {path} cannot be read: {error.strerror}",
                hint="fix or unset NEURONCOMPILE_SETTINGS",
            ) from None
        return {}
    import tomllib  # 18 ms that a host without a settings file does not pay

    try:
        values = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"settings file {path}: {error}", hint=f"edit {path}") from None
    for key, value in values.items():
        if key not in FILE_KEYS:
            near = nearest(key, FILE_KEYS)
            raise UsageError(
                f"settings file {path}: unknown key {key!r}",
                hint=f"did you mean {near!r}?" if near else f"legal keys: {', '.join(FILE_KEYS)}",
            )
        if type(value) is not FILE_KEYS[key]:
            raise UsageError(
                f"settings file {path}: {key} must be {FILE_KEYS[key].__name__}",
                hint=f"edit {path}",
            )
    tiers = values.get("tiers", [])
    if not all(isinstance(url, str) for url in tiers):
        raise UsageError(f"settings file {path}: tiers must be a list of URLs", hint=f"edit {path}")
    return values


def _misspelt(env: Mapping[str, str]) -> list[str]:
    found = []
    prefix = "NEURONCOMPILE_"
    ours = [known.removeprefix(prefix) for known in ENVIRONMENT]
    for name in sorted(env):
        if name.startswith(prefix) and name not in ENVIRONMENT:
            # with the prefix, which all share, any name would be near to one
            near = nearest(name.removeprefix(prefix), ours)
            tail = (
                f"did you mean {prefix}{near}?"
                if near
                else f"what is read: {', '.join(ENVIRONMENT)}"
            )
            found.append(f"{name} is set but nothing reads it; {tail}")
    return found


def _home(env: Mapping[str, str]) -> Path:
    return Path(env["HOME"]) if env.get("HOME") else Path.home()


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _truthy(value: str | None) -> bool:
    return (value or "").strip().upper() in {"1", "ON", "YES", "TRUE"}
