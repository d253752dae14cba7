"""What others have stored does not change: bytes of tiles, lines, tables and plans, and answers of the public API.

The files in `expected/` were written once. `python -m tests.unit.golden.test_golden_files` writes them again; a
difference that it shows is a change of a format that readers and auditors depend on.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from murmurate.commands.verify import verification_document
from murmurate.planning.plan import make_plan
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.public_log.make_tile import change_key, open_shard, release_interval
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.tile import NoiseCode, RowKind, row_dtype
from murmurate.public_log.tile_chain import check_follows
from murmurate.public_log.zone_line import make_zone_line
from murmurate.public_log.zone_table import ZoneRow, ZoneTable
from murmurate.service.public_api.local_days import day_of_interval
from murmurate.service.public_api.openadr import event_days, event_document, program_document, programs_of_zone
from murmurate.service.public_api.price_formats import (
    csv_bytes,
    current_price_document,
    day_document,
    evcc_list,
    new_price_json,
    shard_prices_document,
    vse_tariffs,
    zone_entry,
)
from tests.support.sample_logs import check
from tests.support.zone_views import seconds, view_of
from tests.unit.golden.damaged_logs import PLANS, closed_log, damaged_logs, predicted_shard

EXPECTED = Path(__file__).parent / "expected"
FIRST = 480_000


def shard_files() -> dict[str, bytes]:
    """A shard of two zones: it opens, releases three intervals and changes its key. Nothing in it is random."""
    signer, next_signer = Ed25519Signer(bytes([7]) * 32), Ed25519Signer(bytes([8]) * 32)
    zones = [
        ZoneRow("harbour", "ab" * 32, "EUR", "1/100000", FIRST),
        ZoneRow("hügel", "cd" * 32, "CHF", "1/1000", FIRST),
    ]
    table = ZoneTable.from_rows(zones)
    tiles = [open_shard("east", table, interval=FIRST - 1, interval_s=900, lead=2, signer=signer)]
    head = check_follows(None, tiles[0], table)
    for kinds in ((1, 1), (1, 2), (3, 1)):
        rows = np.zeros(2, row_dtype())
        rows["kind"] = kinds
        rows["price_ticks"] = np.where(rows["kind"] == RowKind.WITHHELD, 0, [12_345, 678])
        measured = rows["kind"] == RowKind.MEASURED
        rows["noise"] = np.where(measured, [NoiseCode.HUBER, NoiseCode.LAPLACE], 0)
        rows["scale_wh"] = np.where(measured, [1500.25, 900.0], 0)
        rows["core_wh"] = np.where(measured, [700, 0], 0)
        rows["epsilon_micro"] = np.where(measured, [10_417, 41_667], 0)
        tiles.append(release_interval(head, rows, signer))
        head = check_follows(head, tiles[-1], table)
    tiles.append(change_key(head, next_signer.public_key, signer))
    lines = [make_zone_line(tile, table, "hügel").to_json() for tile in tiles]
    return {f"tile-{n}.bin": tile.to_bytes() for n, tile in enumerate(tiles)} | {
        "zone-table.json": table.text.encode(),
        "log.jsonl": "".join(f"{line}\n" for line in lines).encode(),
    }


def line_files() -> dict[str, bytes]:
    """Lines of zones under changes of plan and key, until they are closed, and with predicted prices."""
    closed, predicted = closed_log(), predicted_shard()
    logs = {f"closed-{zone}": closed.lines(zone) for zone in ("hill", "quay")}
    table = predicted.head.table
    logs["predicted"] = [make_zone_line(tile, table, "hill").to_json() for tile in predicted.tiles]
    files = {f"{name}.jsonl": "".join(f"{line}\n" for line in lines).encode() for name, lines in logs.items()}
    tiles = {"closing": closed.tiles[-2], "predicted": predicted.tiles[-1]}
    return files | {f"{name}.tile": tile.to_bytes() for name, tile in tiles.items()}


def finding_files() -> dict[str, bytes]:
    """What `murmurate verify --json` prints about logs with one thing wrong."""
    documents: dict[str, dict[str, object]] = {"tiles.json": {}, "lines.json": {}}
    for name, sources in damaged_logs().items():
        report = check(*sources, plans=PLANS)
        document = verification_document(report, [])
        about = {member: document[member] for member in ("valid", "complete", "zones", "finding_count", "findings")}
        proofs = [[proof.zone, proof.contradicts, len(proof.lines)] for proof in report.proofs]
        documents["lines.json" if "line" in name else "tiles.json"][name] = about | {"proofs": proofs}
    files: dict[str, bytes] = {}
    for file, cases in documents.items():  # a line for each log
        lines = (f"{json.dumps(name)}: {json.dumps(about, ensure_ascii=False)}" for name, about in cases.items())
        files[file] = "{{\n{}\n}}\n".format(",\n".join(lines)).encode()
    return files


def api_files() -> dict[str, bytes]:
    """Answers of the public API about a day and a half of one zone, with prices that are withheld and expected."""
    begin_s = seconds(2026, 11, 13, 23)
    ticks = [None if n % 40 == 7 else 8000 + n * 37 % 4000 for n in range(144)]
    view = view_of(ticks, begin_s=begin_s, expected=tuple(9000 + 10 * n for n in range(96)))
    now_s = begin_s + 100 * 900 + 60.5
    day = day_of_interval(view, view.first_priced + 10)
    programs = programs_of_zone(view)
    answers = {
        "now": current_price_document(view, now_s),
        "day": day_document(view, day),
        "evcc": evcc_list(view, now_s),
        "evcc-forecast": evcc_list(view, now_s, forecast=True),
        "zone": zone_entry(view),
        "shard-prices": shard_prices_document(view.shard, view.last_decided),
        "new-price": json.loads(new_price_json(view, view.prices[view.last_decided])),
        "vse": vse_tariffs(view, min(view.prices), view.last_decided),
        "openadr-programs": [program_document(program, "https://prices.example") for program in programs],
        "openadr-events": [event_document(event_day) for program in programs for event_day in event_days(program)],
    }
    files = {f"{name}.json": (json.dumps(answer, indent=1) + "\n").encode() for name, answer in answers.items()}
    return files | {"history.csv": csv_bytes(view.prices.values(), view.interval_s, view.currency)}


def plan_files() -> dict[str, bytes]:
    return {"plan.json": make_plan(parse_zone(EXAMPLE_ZONE_FILE)).to_json().encode()}


SLOW = {"lines", "findings"}  # a fifth of a second or longer
SOURCES = {"log": shard_files, "lines": line_files, "findings": finding_files, "api": api_files, "plan": plan_files}


@pytest.mark.parametrize("source", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in SOURCES])
def test_bytes_that_others_have_stored_do_not_change(source):
    folder = EXPECTED / source
    assert SOURCES[source]() == {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


if __name__ == "__main__":
    for name, source in SOURCES.items():
        (EXPECTED / name).mkdir(parents=True, exist_ok=True)
        for file_name, data in source().items():
            (EXPECTED / name / file_name).write_bytes(data)
