"""The rules of a chain stated a second time, from the public description alone, so that no bug can hide in one place.

Lines are plain dictionaries here, as any reader of the log would parse them. Nothing of `murmurate` is imported.
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
    """What the signature of a line is for: the line without it."""
    return (text[: text.rindex(',"signature":')] + "}").encode()


def misfit(head: Line | None, head_hash: str, line: Line) -> str | None:
    """Which rule a line breaks as the next one after `head`; none if it follows. Who signed it is another question."""
    if line.keys() != MEMBERS or line["murmurate"] != 1:
        return "version"
    return _misshape(line) or (_no_opening(line) if head is None else _no_successor(head, head_hash, line))


def _misshape(line: Line) -> str | None:
    kind = line["kind"]
    shape = {
        "kind": kind in ("open", "plan", "key", *RELEASES),
        "interval_s": line["interval_s"] >= 1,
        "next_key": (line["next_key"] is not None) == (kind == "key"),
        "price_ticks": (line["price_ticks"] is not None) == (kind in ("measured", "forecast")),
        "measured": _sound_measurement(line) if kind == "measured" else _nothing_measured(line),
    }
    return None if all(shape.values()) else next(name for name, fine in shape.items() if not fine)


def _nothing_measured(line: Line) -> bool:
    free = line["epsilon_micro"] == 0 == line["rho_micro"]
    return free and line["noise"] == "none" and line["scale_wh"] is None and line["core_wh"] == 0


def _sound_measurement(line: Line) -> bool:
    if line["noise"] not in SPENDS or line["scale_wh"] is None:
        return False
    if line["core_wh"] < 0 or (line["core_wh"] > 0 and line["noise"] != "huber"):
        return False
    return line[SPENDS[line["noise"]]] == abs(line["epsilon_micro"]) + abs(line["rho_micro"])


def _no_opening(line: Line) -> str | None:
    totals = line["total_epsilon_micro"] == 0 == line["total_rho_micro"]
    first = line["kind"] == "open" and line["seq"] == 0 and line["prev"] == "0" * 64
    return None if first and totals else "opening"


def _no_successor(head: Line, head_hash: str, line: Line) -> str | None:
    wanted = {
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
        wanted |= {name: head[name] for name in ("plan", "currency", "tick")}
    if line["kind"] == "open":
        return "opened twice"
    return next((name for name, value in wanted.items() if line[name] != value), None)
