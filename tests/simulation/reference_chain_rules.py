"""A second implementation of the chain rules, written from the public description of the log.

Lines are plain dictionaries, as a reader of the log parses them. This file imports nothing from `murmurate`.
"""

from __future__ import annotations

from typing import Any

Line = dict[str, Any]

MEMBERS = frozenset(
    [
        "murmurate",
        "zone",
        "seq",
        "kind",
        "interval",
        "applies",
        "interval_s",
        "plan",
        "currency",
        "tick",
        "price_ticks",
        "noise",
        "scale_wh",
        "core_wh",
        "epsilon_micro",
        "rho_micro",
        "total_epsilon_micro",
        "total_rho_micro",
        "key",
        "next_key",
        "prev",
        "signature",
    ]
)
RELEASES = ("measured", "forecast", "withheld")
SPENDS = {"laplace": "epsilon_micro", "huber": "epsilon_micro", "gaussian": "rho_micro"}


def signed_bytes(text: str) -> bytes:
    """Return the signed bytes of a line: the line without its signature."""
    return (text[: text.rindex(',"signature":')] + "}").encode()


def broken_rule(head: Line | None, head_hash: str, line: Line) -> str | None:
    """Return the rule that a line breaks as the next one after `head`, or None. The signature is not checked."""
    if line.keys() != MEMBERS or line["murmurate"] != 1:
        return "version"
    return _broken_member_rule(line) or (
        _broken_opening_rule(line) if head is None else _broken_successor_rule(head, head_hash, line)
    )


def _broken_member_rule(line: Line) -> str | None:
    kind = line["kind"]
    rules = {
        "kind": kind in ("open", "plan", "key", *RELEASES),
        "interval_s": line["interval_s"] >= 1,
        "next_key": (line["next_key"] is not None) == (kind == "key"),
        "price_ticks": (line["price_ticks"] is not None) == (kind in ("measured", "forecast")),
        "measured": _is_valid_measurement(line) if kind == "measured" else _has_no_measurement(line),
    }
    return None if all(rules.values()) else next(name for name, holds in rules.items() if not holds)


def _has_no_measurement(line: Line) -> bool:
    free = line["epsilon_micro"] == 0 == line["rho_micro"]
    return free and line["noise"] == "none" and line["scale_wh"] is None and line["core_wh"] == 0


def _is_valid_measurement(line: Line) -> bool:
    if line["noise"] not in SPENDS or line["scale_wh"] is None:
        return False
    if line["core_wh"] < 0 or (line["core_wh"] > 0 and line["noise"] != "huber"):
        return False
    return line[SPENDS[line["noise"]]] == abs(line["epsilon_micro"]) + abs(line["rho_micro"])


def _broken_opening_rule(line: Line) -> str | None:
    totals = line["total_epsilon_micro"] == 0 == line["total_rho_micro"]
    first = line["kind"] == "open" and line["seq"] == 0 and line["prev"] == "0" * 64
    return None if first and totals else "opening"


def _broken_successor_rule(head: Line, head_hash: str, line: Line) -> str | None:
    expected = {
        "zone": head["zone"],
        "seq": head["seq"] + 1,
        "prev": head_hash,
        "key": head["next_key"] or head["key"],
        "interval": head["interval"] + (1 if line["kind"] in RELEASES else 0),
        "applies": line["interval"] + head["applies"] - head["interval"],
        "interval_s": head["interval_s"],
        "total_epsilon_micro": head["total_epsilon_micro"] + line["epsilon_micro"],
        "total_rho_micro": head["total_rho_micro"] + line["rho_micro"],
    }
    if line["kind"] != "plan":
        expected |= {name: head[name] for name in ("plan", "currency", "tick")}
    if line["kind"] == "open":
        return "opened twice"
    return next((name for name, value in expected.items() if line[name] != value), None)
