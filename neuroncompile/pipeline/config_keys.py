"""`config keys`: every keyword of the neuron config, or one of them in full."""

from __future__ import annotations

from neuroncompile.output import Output

__all__ = ["config_keys_command"]


def config_keys_command(name: str | None, output: Output) -> int:
    """List all keywords, or describe one.

    Raises:
        ConfigError: no such keyword, with the nearest.
    """
    from neuroncompile.config.keywords import ABOUT, REACHES
    from neuroncompile.config.listing import Keyword, keyword, keywords

    if name is None:
        records = keywords()
        output.table(
            ("KEYWORD", "TYPE", "DEFAULT", "REACHES", "MEANING"),
            [(k.name, k.type, _default(k.default), k.reaches, k.meaning) for k in records],
        )
        output.result([record.as_json() for record in records])
        return 0
    record: Keyword = keyword(name)
    legal = record.legal
    rows = [
        ("keyword", record.name),
        ("meaning", record.meaning),
        ("type", record.type),
        ("default", _default(record.default)),
        ("legal", "any" if legal is None else legal if isinstance(legal, str) else _list(legal)),
        ("reaches", f"{record.reaches}: {REACHES[record.reaches]}"),
        ("since", f"NxD Inference {record.since}"),
        ("models", ", ".join(record.families) or "all"),
        ("class", f"{record.owner}: {ABOUT[record.owner]}"),
    ]
    for label, text in rows:
        output.line(f"{label:<8}  {text}")
    output.result(record.as_json())
    return 0


def _default(value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, str) and value.startswith("="):
        return f"{value[1:]}" if value != "=target" else "by target"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return _list(value) or "empty"
    return str(value)


def _list(values: list[object] | tuple[object, ...]) -> str:
    return ", ".join(str(v).lower() if isinstance(v, bool) else str(v) for v in values)
