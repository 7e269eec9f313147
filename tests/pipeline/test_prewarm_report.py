"""Exit codes, JSON Lines and JUnit of many programs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroncompile.errors import (
    CacheMissError,
    CompileError,
    ConfigError,
    ModelError,
    NeuronCompileError,
    TierError,
)
from neuroncompile.output import Output
from neuroncompile.pipeline.prewarm_report import (
    Record,
    Row,
    check_junit,
    exit_code,
    show,
    write_junit,
)
from neuroncompile.pipeline.prewarm_shard import Shard


def row(status: str = "warm", error: NeuronCompileError | None = None, **values: Any) -> Row:
    name = values.pop("name", "grid[batch_size=4]")
    return Row("grid", {"config.batch_size": 4}, name, name, status, error=error, **values)


COMPILE, CONFIG, MODEL = CompileError("c"), ConfigError("v"), ModelError("m")


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([], 0),
        ([row("skipped", reason="in other shards")], 0),
        ([row("warm"), row("built"), row("pulled")], 0),
        ([row("warm"), row("cold")], 3),
        ([row("warm"), row("failed", COMPILE)], 6),
        ([row("warm"), row("failed", CONFIG)], 6),
        ([row("cold"), row("failed", CONFIG)], 6),
        ([row("failed", CONFIG)], 5),
        ([row("failed", MODEL), row("failed", MODEL)], 4),
        ([row("failed", MODEL), row("failed", CONFIG)], 6),
        ([row("failed", CONFIG), row("skipped", reason="in other shards")], 5),
        ([row("failed", TierError("t")), row("failed", TierError("t"))], 8),
        ([row("failed", CacheMissError("n"))], 3),
    ],
)
def test_exit_code(rows: list[Row], code: int) -> None:
    assert exit_code(rows) == code


def test_a_record_grows_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    output = Output(quiet=True)
    built = row("built", key="ab" * 32, source="compiler", seconds=1.23456, size=7, when=0.0)
    Record(path, output).add(built)
    Record(path, output).add(row("failed", ConfigError("no", field="x", value=1, hint="so")))
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first == {
        "schema": 1,
        "recipe": "grid",
        "cell": {"config.batch_size": 4},
        "name": "grid[batch_size=4]",
        "key": "ab" * 32,
        "status": "built",
        "source": "compiler",
        "seconds": 1.235,
        "bytes": 7,
        "exit_code": 0,
        "error": None,
        "reason": None,
        "when": "1970-01-01T00:00:00Z",
    }
    assert (second["exit_code"], second["error"]["type"]) == (5, "ConfigError")
    assert second["error"]["details"] == {"field": "x", "value": 1, "legal": None}


def test_a_torn_line_stays_alone(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text('{"whole": 1}\n{"torn')
    Record(path, Output(quiet=True)).add(row())
    lines = path.read_text().splitlines()
    assert lines[:2] == ['{"whole": 1}', '{"torn']
    assert json.loads(lines[2])["status"] == "warm"


def test_reports_that_cannot_be_written_are_refused_at_once(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "file", tmp_path):
        with pytest.raises(ConfigError, match="--record") as caught:
            Record(path, Output(quiet=True))
        assert caught.value.field == "record"
        with pytest.raises(ConfigError, match="--junit"):
            check_junit(path)
    check_junit(tmp_path / "fine.xml")
    assert list(tmp_path.iterdir()) == []


def test_a_record_on_a_full_disk_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    output = Output()
    record = Record(Path("/dev/full"), output)
    record.add(row())
    assert "--record /dev/full cannot be written: No space left" in capsys.readouterr().err
    assert len(output.warnings) == 1


# Element → required attributes, other attributes, and the order of children: what both the
# schema of Apache Ant's reports and the one of Jenkins' xUnit plugin take.
SUITE = {"name", "timestamp", "hostname", "tests", "failures", "errors", "time", "package", "id"}
SCHEMA: dict[str, tuple[set[str], set[str], str]] = {
    "testsuites": (set(), set(), r"(testsuite )*"),
    "testsuite": (SUITE, {"skipped"}, r"properties (testcase )*system-out system-err "),
    "properties": (set(), set(), r"(property )*"),
    "property": ({"name", "value"}, set(), ""),
    "testcase": ({"name", "classname", "time"}, set(), r"((skipped|error|failure) )?"),
    "failure": ({"type"}, {"message"}, ""),
    "error": ({"type"}, {"message"}, ""),
    "skipped": (set(), {"message"}, ""),
    "system-out": (set(), set(), ""),
    "system-err": (set(), set(), ""),
}
TIME = re.compile(r"[0-9]+\.[0-9]{3}")


def checked(path: Path) -> ElementTree.Element:
    """The suite of a document that is valid."""
    root = ElementTree.parse(path).getroot()
    assert root.tag == "testsuites"
    for element in root.iter():
        required, optional, children = SCHEMA[element.tag]
        assert required <= set(element.attrib) <= required | optional, element.tag
        assert re.fullmatch(children, "".join(f"{child.tag} " for child in element)), element.tag
        assert TIME.fullmatch(element.get("time", "0.000"))
    [suite] = root
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
    cases = suite.findall("testcase")
    assert int(suite.attrib["tests"]) == len(cases)
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[name]) == len(suite.findall(f"testcase/{tag}"))
    return suite


def test_junit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(
        b"".join(b"line %d\n" % n for n in range(100)) + b"\x1b[31mred\x1b[0m \x07\xff\n"
    )
    failed = CompileError("it \x00 died", hint="read it", details={"log": str(log)})
    rows = [
        row("built", name="a", seconds=3725.5),
        row("cold", name="b", key="cd" * 32),
        row("failed", failed, name="c", key="ef" * 32),
        row("failed", ConfigError("no <such> & value"), name="d"),
        row("skipped", name="e", reason="in other shards"),
    ]
    path = tmp_path / "junit.xml"
    write_junit(path, rows, Shard(1, 3, "--shard"), 0.0, 3726.0)
    suite = checked(path)
    assert sorted(tmp_path.iterdir()) == [path, log]
    built, cold, died, refused, skipped = suite.findall("testcase")
    assert (built.attrib["time"], list(built)) == ("3725.500", [])
    assert built.attrib["classname"] == "grid"
    assert cold[0].attrib["type"] == "CacheMissError"
    assert cold[0].text == f"key {'cd' * 32}"
    assert (died[0].tag, died[0].attrib["type"]) == ("failure", "CompileError")
    assert died[0].attrib["message"] == "it \ufffd died"
    lines = (died[0].text or "").splitlines()
    assert lines[:2] == ["read it", f"key {'ef' * 32}"]
    assert len(lines) == 42
    assert lines[-2:] == ["line 99", "red \ufffd\ufffd"]
    assert (refused[0].tag, refused[0].attrib["message"]) == ("error", "no <such> & value")
    assert skipped[0].attrib["message"] == "in other shards"
    [shard] = suite.findall("properties/property")
    assert shard.attrib == {"name": "shard", "value": "2/3"}


@given(message=st.text(), name=st.text(min_size=1), lines=st.lists(st.text(), max_size=3))
def test_junit_holds_whatever_a_compiler_says(
    tmp_path_factory: pytest.TempPathFactory, message: str, name: str, lines: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.xml"
    error = CompileError(message, details={"last_lines": lines})
    write_junit(path, [row("failed", error, name=name)], None, 0.0, 1.0)
    assert checked(path).attrib["failures"] == "1"


def test_the_table_fits_80_columns_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        row("built", key="ab" * 32, seconds=4020, size=999_999_999, name="llama[batch_size=1]"),
        row("failed", ConfigError("too large", hint="lower it"), name="llama[batch_size=2]"),
        row("skipped", reason="in other shards"),
        row("skipped", reason="in other shards"),
    ]
    show(rows, Shard(0, 2, "--shard"), 4020.5, Output())
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "STATUS  TIME   SIZE       KEY           PROGRAM",
        "built   1h07m  1000.0 MB  abababababab  llama[batch_size=1]",
        "failed  0.0 s  -          -             llama[batch_size=2]",
        "",
        "llama[batch_size=2] failed with exit code 5: too large",
        "  lower it",
        "shard 1/2: 1 built, 1 failed, 2 in other shards in 1h07m",
    ]
    assert max(map(len, lines)) <= 80
