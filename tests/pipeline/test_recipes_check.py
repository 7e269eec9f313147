"""`recipes check` on good, bad and unknown recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Run

GOOD = """
schema = 1
[model]
ref = "org/model"
facts = { architectures = ["LlamaForCausalLM"], model_type = "llama", hidden_size = 64, \
num_attention_heads = 4, num_key_value_heads = 4, num_hidden_layers = 2, vocab_size = 256, \
intermediate_size = 128, max_position_embeddings = 512, dtype = "bfloat16" }
[target]
platform = "trn2"
[config]
seq_len = 256
[toolchain]
sdk = "2.29"
"""


def checked(run: Run, path: Path) -> tuple[int, list[dict[str, Any]]]:
    done = run("recipes", "check", str(path), "--json")
    return done.code, done.document["result"]


def test_shipped_recipes_are_good(run: Run) -> None:
    shipped = sorted(str(path) for path in (ROOT / "recipes").glob("*.toml"))
    done = run("recipes", "check", *shipped, "--json")
    assert done.code == 0, done.out
    rows = done.document["result"]
    assert len(rows) >= len(shipped)
    assert {row["status"] for row in rows} == {"good"}
    assert all(row["key"] for row in rows)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("seq_len = 256", "seqlen = 256", "seqlen"),
        ("seq_len = 256", "seq_len = 256\ntp_degree = 3", "tp_degree"),
        ('platform = "trn2"', 'platform = "trn1"', "target"),
        ('sdk = "2.29"', 'sdk = "9.9"', None),
        ("seq_len = 256", 'seq_len = 256\n[matrix]\n"config.batch_size" = [1, 0]', "batch_size"),
    ],
    ids=["keyword", "combination", "window", "sdk", "matrix"],
)
def test_bad_one_is_refused_by_its_field(
    run: Run, tmp_path: Path, old: str, new: str, field: str | None
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    assert checked(run, path)[0] == 0
    path.write_text(GOOD.replace(old, new))
    code, rows = checked(run, path)
    assert code == 5
    bad = [row for row in rows if row["status"] == "refused"]
    assert len(bad) == 1
    if field is not None:
        assert bad[0]["error"]["details"]["field"] == field


def test_model_that_is_not_here_is_not_judged(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    head, _, rest = GOOD.partition("facts")
    path.write_text(head + rest.partition("}\n")[2])
    code, rows = checked(run, path)
    assert (code, rows[0]["status"]) == (0, "not judged")


def test_broken_file_does_not_hide_the_others(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("schema = 1\n[modell]\n")
    (tmp_path / "b.toml").write_text(GOOD)
    done = run("recipes", "check", str(tmp_path / "a.toml"), str(tmp_path / "b.toml"), "--json")
    assert done.code == 5
    assert [row["status"] for row in done.document["result"]] == ["refused", "good"]
