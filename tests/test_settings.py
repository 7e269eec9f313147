"""One resolver for store, hub and jobs, with the origin of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroncompile.errors import ConfigError, UsageError
from neuroncompile.settings import ENVIRONMENT, load_settings


def env(tmp_path: Path, **extra: str) -> dict[str, str]:
    return {"HOME": str(tmp_path), **extra}


def test_store_precedence(tmp_path: Path) -> None:
    config = tmp_path / ".config/neuroncompile/settings.toml"
    base = env(tmp_path)
    assert load_settings(environ=base).store == tmp_path / ".cache/neuroncompile"
    base["XDG_CACHE_HOME"] = str(tmp_path / "xdg")
    assert load_settings(environ=base).store == tmp_path / "xdg/neuroncompile"
    config.parent.mkdir(parents=True)
    config.write_text(f'store = "{tmp_path}/file"\n')
    assert load_settings(environ=base).store == tmp_path / "file"
    base["NEURONCOMPILE_STORE"] = str(tmp_path / "variable")
    assert load_settings(environ=base).store == tmp_path / "variable"
    flagged = load_settings(store=tmp_path / "flag", environ=base)
    assert (flagged.store, flagged.store_origin) == (tmp_path / "flag", "--store")


def test_a_misspelt_variable_is_named_with_the_live_one(tmp_path: Path) -> None:
    settings = load_settings(environ=env(tmp_path, NEURONCOMPILE_STOR="x"))
    assert settings.warnings == (
        "NEURONCOMPILE_STOR is set but nothing reads it; did you mean NEURONCOMPILE_STORE?",
    )


def test_the_token_never_shows(tmp_path: Path) -> None:
    token = "hf_" + "a" * 34
    settings = load_settings(environ=env(tmp_path, HF_TOKEN=token))
    assert settings.hub.token == token
    assert token not in repr(settings)


def test_token_file_of_the_hub_client(tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/token").write_text("hf_fromfile\n")
    assert load_settings(environ=env(tmp_path, HF_HOME=f"{tmp_path}/hf")).hub.token == "hf_fromfile"


@pytest.mark.parametrize("value", ["1", "ON", "true", "Yes"])
def test_offline_variable(tmp_path: Path, value: str) -> None:
    assert load_settings(environ=env(tmp_path, HF_HUB_OFFLINE=value)).offline
    assert not load_settings(environ=env(tmp_path, HF_HUB_OFFLINE="0")).offline


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_jobs_below_one(tmp_path: Path, jobs: str) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        load_settings(environ=env(tmp_path, NEURONCOMPILE_JOBS=jobs))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('stoer = "x"', "unknown key 'stoer'"),
        ("store = 3", "store must be str"),
        ("store = ", "Invalid value"),
        ('tiers = "s3://one"', "tiers must be list"),
        ("tiers = [3]", "tiers must be a list of URLs"),
    ],
)
def test_bad_settings_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        load_settings(environ=env(tmp_path, NEURONCOMPILE_SETTINGS=str(file)))


def test_a_named_settings_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_settings(environ=env(tmp_path, NEURONCOMPILE_SETTINGS=str(tmp_path / "none")))


def test_tiers_by_flag_variable_or_file(tmp_path: Path) -> None:
    config = tmp_path / ".config/neuroncompile/settings.toml"
    config.parent.mkdir(parents=True)
    config.write_text('tiers = ["s3://file/x"]\ntier_timeout = 5\n')
    base = env(tmp_path)
    settings = load_settings(environ=base)
    assert (settings.tiers, settings.tier_timeout) == (("s3://file/x",), 5.0)
    base |= {"NEURONCOMPILE_TIER": "s3://a, s3://b  s3://a", "NEURONCOMPILE_TIER_TIMEOUT": "0.5"}
    settings = load_settings(environ=base)
    assert (settings.tiers, settings.tier_timeout) == (("s3://a", "s3://b"), 0.5)
    assert load_settings(tiers=["file:///x"], environ=base).tiers == ("file:///x",)
    assert load_settings(environ=env(tmp_path / "none")).tiers == ()


@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan", "1e9"])
def test_a_timeout_is_a_number_of_seconds(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match="seconds above 0"):
        load_settings(environ=env(tmp_path, NEURONCOMPILE_TIER_TIMEOUT=value))


def test_a_variable_like_none_of_ours_is_told_those_that_are_read(tmp_path: Path) -> None:
    environ = env(tmp_path, NEURONCOMPILE_QQQQ="s3://bucket")
    [warning] = load_settings(environ=environ).warnings
    assert warning.startswith("NEURONCOMPILE_QQQQ is set but nothing reads it")
    assert all(name in warning for name in ENVIRONMENT)
    assert "s3://bucket" not in warning
