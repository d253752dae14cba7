"""Logs with one thing wrong, in tiles and in the lines of a zone. Nothing in them is random."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.tile import CLOSED, Tile, sign_tile
from murmurate.public_log.zone_line import make_zone_line
from tests.support.contradictions import two_values
from tests.support.predicted_zones import PredictedShard, plan_text
from tests.support.sample_logs import (
    NEW,
    OLD,
    OTHER,
    PLAN,
    UNKNOWN_SIGNER,
    F,
    M,
    ShardLog,
    edit_rows,
    log,
    plan,
    resign,
    zone_row,
)

LOOSE = plan("any 12 h: epsilon 1")
PREDICTED = plan_text(households=3000)
Items = list[bytes | str]


def closed_log() -> ShardLog:
    """Every kind of tile and row, another plan, another key, a zone that enters and one that is closed."""
    made = log().enter([*log().table.rows, zone_row("quay", since=log().head.interval + 1)])
    return made.release([M, F, M, M]).close("hill").release()


def predicted_shard() -> PredictedShard:
    """A shard with predicted prices: measured, without a demand, and too late."""
    shard = PredictedShard({"hill": PREDICTED, "mill": plan(old='"0.0002"', new='"0.00005"')})
    for n in range(4):
        shard.release({"hill": 1_000_000 + 10_000 * n, "mill": 400_000} if n != 2 else {}, late=n == 3)
    shard.release({"hill": 990_000})
    return shard


def _edited(change: Callable[[np.ndarray], Any], kinds: Any = M) -> ShardLog:
    """The log of which tile 3 has other rows, signed again, and one tile after it."""
    return log().cut(3).release(kinds, edit=change).release()


def _set(column: str, value: Any) -> Callable[[np.ndarray], Any]:
    def change(rows: np.ndarray) -> None:
        rows[column][1] = value if value is not None else rows[column][1] + 1

    return change


def _add(made: ShardLog, **members: Any) -> ShardLog:
    """The log with its last header changed and signed again."""
    kept = made.cut(len(made.tiles) - 1)
    signer = {OLD.public_key: OLD, NEW.public_key: NEW}.get(members.get("key", made.tiles[-1].header.key), OLD)
    return kept.add(resign(made.tiles[-1], signer, **members), made.table_of(made.tiles[-1]))


def _both(name: str, made: ShardLog, zone: str = "hill") -> Iterator[tuple[str, list[Items]]]:
    yield f"tiles: {name}", [made.items()]
    try:
        yield f"lines: {name}", [list(made.lines(zone))]
    except ValueError:  # a kind that has no name cannot be written as a line
        return


def _single_changes() -> Iterator[tuple[str, list[Items]]]:
    yield from _both("as it is", log())
    yield from _both("zones enter and are closed", closed_log())
    for column, value in {
        "kind": 7, "noise": 3, "price_ticks": 900_000, "scale_wh": None, "core_wh": None, "epsilon_micro": None,
        "rho_micro": 5, "total_epsilon_micro": None, "total_rho_micro": None, "prev": 1,
    }.items():  # fmt: skip
        yield from _both(f"another {column}", _edited(_set(column, value)))
    yield from _both("a fallback at another price", _edited(_set("price_ticks", None), F))
    release = log().cut(4)
    for member, value in {
        "seq": 9, "interval": 480_009, "interval_s": 900, "lead": 5, "prev": "a" * 64, "key": NEW.public_key,
        "kind": "open",
    }.items():  # fmt: skip
        yield from _both(f"header with another {member}", _add(release, **{member: value}))
    made = log().close("hill")
    stated = made.tiles[-1].header.extensions[CLOSED]["hill"]
    for name, closing in {"nothing": {}, "another total": stated | {"total_rho_micro": 7}, "a number": 5}.items():
        tile = resign(made.tiles[-1], NEW, extensions={CLOSED: {"hill": closing}})
        yield from _both(f"closed with {name}", log().add(tile, made.table))
    (digest, its), *_ = ShardLog().terms.items()
    for name, terms in {
        "released too cheaply": {digest: replace(its, scale_wh=its.scale_wh / 2)},
        "under a plan that was not given": {"ab" * 32: its},
    }.items():
        yield from _both(name, ShardLog(terms=terms, plan_digest=next(iter(terms))).release())
    loose = ShardLog(terms=_terms(PLAN, LOOSE)).release(times=24).change_plan(_digest(LOOSE)).release()
    yield from _both("a change of plan that costs too much", loose)


def _terms(*texts: str) -> dict[str, Any]:
    return {terms.plan_digest: terms for terms in map(ReleaseTerms.from_json, texts)}


def _digest(text: str) -> str:
    return next(iter(_terms(text)))


def _listed_changes() -> Iterator[tuple[str, list[Items]]]:
    """What is wrong with the list of tiles or lines, and not with one of them."""
    for form, whole in {"tiles": log().items(), "lines": list(log().lines("hill"))}.items():
        first = len(whole) - len(log().tiles)  # documents stand before
        yield f"{form}: one is missing", [[*whole[: first + 4], *whole[first + 5 :]]]
        yield f"{form}: the first is missing", [[*whole[:first], *whole[first + 1 :]]]
        yield f"{form}: one stands twice", [[*whole, whole[first + 3]]]
        yield (
            f"{form}: two are exchanged",
            [[*whole[: first + 4], whole[first + 5], whole[first + 4], *whole[first + 6 :]]],
        )
        for at, name in ((first + 3, "a release"), (len(whole) - 2, "a change of key")):
            data = whole[at] if isinstance(whole[at], bytes) else str(whole[at]).encode()
            yield (
                f"{form}: {name} is damaged",
                [[*whole[:at], data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], *whole[at + 1 :]]],
            )
        yield f"{form}: something else is among them", [[*whole, b"\xff", '{"index":', '{"count":']]
        yield (
            f"{form}: a shorter copy, and one that is damaged",
            [whole[: first + 6], [*whole[:first], *whole[first + 3 :]]],
        )
    one, other = two_values()
    stranger = one.tiles[4]
    forged = Tile(stranger.header, UNKNOWN_SIGNER.sign(stranger.header.signed_bytes()), stranger.rows)
    foreign = resign(other.tiles[4], UNKNOWN_SIGNER, key=UNKNOWN_SIGNER.public_key)
    for name, tile in {"another value": other.tiles[4], "forged": forged, "of a stranger": foreign}.items():
        line = make_zone_line(tile, one.table, "hill").to_json()
        yield f"tiles: {name}", [one.items(), [tile.to_bytes()]]
        yield f"lines: {name}", [list(one.lines("hill")), [line]]
        yield f"tiles and a line: {name}", [one.items(), [line]]
    east, west = ShardLog("east").release(times=6), ShardLog("west", ("hill", "mill"), first=480_002).release()
    yield "tiles: a zone in two shards", [[*east.items(), *west.items()]]
    yield "lines: a zone in two shards", [[*east.lines("hill"), *west.lines("hill")]]
    yield "tiles: without a zone table", [[tile.to_bytes() for tile in log().tiles]]
    yield "tiles and lines that go further", [log().cut(6).items(), list(log().lines("hill"))]


def _add_to_first(column: str, add: int, rows: np.ndarray) -> None:
    rows[column][0] += add


def _predicted_changes() -> Iterator[tuple[str, list[Items]]]:
    shard = predicted_shard()
    last, table = shard.tiles[-1], shard.head.table
    tiles = {"as it is": last}
    for name, column, add in (("price", "price_ticks", 1), ("state", "states", 1), ("due price", "due", 1)):
        change = partial(_add_to_first, column, add)
        tiles[f"another {name}"] = edit_rows(last, table, change, OLD)
    unreadable = {"inputs": {"Lisbon temperature": 4}}
    tiles["unreadable inputs"] = sign_tile(replace(last.header, extensions=unreadable), OLD, last.rows)
    for name, tile in tiles.items():
        made = [*shard.tiles[:-1], tile]
        yield (
            f"predicted tiles: {name}",
            [[*(each.text for each in shard.tables.values()), *(each.to_bytes() for each in made)]],
        )
        yield f"predicted lines: {name}", [[make_zone_line(each, table, "hill").to_json() for each in made]]


def damaged_logs() -> dict[str, list[Items]]:
    """The items of each source of a log, by what is wrong with it."""
    return dict([*_single_changes(), *_listed_changes(), *_predicted_changes()])


PLANS = (PLAN, OTHER, LOOSE, PREDICTED, plan(old='"0.0002"', new='"0.00005"'))
