# ruff: noqa: INP001  a script of its own
"""Pictures of the pages for the docs, from a made-up day: python tools/screenshots.py [--dark FOLDER].

Nothing in them was measured: the demand is a drawn curve, the noise is a rehearsal's, the keys open nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
from PIL import Image, ImageChops

from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import NoiseDistribution, SeededNoise
from murmurate.public_log.make_tile import open_shard
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.tile import RowKind, Rows, row_dtype
from murmurate.public_log.tile_chain import ShardHead
from murmurate.public_log.zone_table import ZoneRow, ZoneTable
from murmurate.service.auth import ApiClient
from murmurate.service.log_reader.price_columns import PriceColumns
from murmurate.service.log_reader.zone_view import ShardView, ZoneView
from murmurate.service.operator_api.routes import operator_page
from murmurate.service.operator_api.status import ServiceStatus, service_status
from murmurate.service.public_api.pages.routes import plan_page, zones_page
from murmurate.service.public_api.pages.zone_page import zone_page
from murmurate.service.settings import ServiceSettings, ZoneDisplay
from murmurate.service.worker.zone_warnings import warn_of_household_counts
from murmurate.translations.language import ENGLISH, GERMAN
from murmurate.units import IntArray

IMAGES = Path(__file__).parents[1] / "docs" / "images"
ZURICH = ZoneInfo("Europe/Zurich")
NOW_S = datetime(2026, 11, 14, 14, 20, tzinfo=ZURICH).timestamp()
STEP_S, LEAD = 900, 2
MIDNIGHT = int(datetime(2026, 11, 14, tzinfo=ZURICH).timestamp()) // STEP_S
FORECAST, WITHHELD = 27, 38  # intervals of the local day
IN_DOCS = ("zone", "zone-german", "plan", "plan-german", "operator")
BASE_URL = "https://prices.example.ch"
SIGNER = Ed25519Signer(bytes(32))


def town() -> ReleaseTerms:
    """The example zone grown to 40,000 flats, with the promise for a year that is recommended for so many."""
    text = (
        EXAMPLE_ZONE_FILE.replace('"harbour"', '"seefeld"')
        .replace('"EUR"', '"CHF"')
        .replace("count = 800", "count = 40000")
    )
    text = text.replace("Europe/Lisbon", "Europe/Zurich")
    text = text.replace('"0.0002"', '"0.000012"').replace("any 24 h: epsilon 1", "any 365 d: epsilon 4")
    return ReleaseTerms.from_json(make_plan(parse_zone(text)).to_json())


def demand_wh(terms: ReleaseTerms) -> IntArray:
    """A day with a morning and an evening peak [local interval], around what the plan expects."""
    hours = np.arange(96) / 4
    level = float(terms.curve.tick) * float(terms.forecast_ticks.mean())
    mean_kwh = (level - 0.08) / 0.000012
    shape = 0.66 + 0.42 * np.exp(-(((hours - 7.6) / 1.3) ** 2)) + 0.7 * np.exp(-(((hours - 18.9) / 2.2) ** 2))
    shape += 0.16 * np.exp(-(((hours - 12.2) / 1.2) ** 2)) - 0.12 * np.exp(-(((hours - 3.2) / 2.4) ** 2))
    drawn: IntArray = np.rint(1000 * mean_kwh * shape / shape.mean()).astype(np.int64)
    return drawn


def rows_of(terms: ReleaseTerms, drawn: IntArray, measured: range, more_ticks: int) -> list[Rows]:
    """Two days of releases, of which one is a forecast and one is withheld: a row for each interval."""
    slots = np.array(measured) % 96
    core_wh = terms.core_wh[slots] if terms.distribution is NoiseDistribution.HUBER else None
    noise = SeededNoise(20261114).draw(terms.distribution, terms.scale_wh[slots], core_wh)
    odd = {MIDNIGHT + FORECAST - LEAD: RowKind.FALLBACK, MIDNIGHT + WITHHELD - LEAD: RowKind.WITHHELD}
    found = []
    for n, extra in zip(measured, noise.tolist(), strict=True):
        row, kind = np.zeros(1, row_dtype()), odd.get(n, RowKind.MEASURED)
        wh = int(drawn[(n + LEAD - MIDNIGHT) % 96]) + (extra if kind is RowKind.MEASURED else 0)
        row["kind"] = kind
        row["price_ticks"] = 0 if kind is RowKind.WITHHELD else int(terms.curve.price_ticks(wh)) + more_ticks
        if kind is RowKind.MEASURED:
            row["scale_wh"], row["core_wh"] = terms.scale_wh[n % 96], terms.core_wh[n % 96]
        found.append(row)
    return found


def view_of(terms: ReleaseTerms, zone: str, title: str, *, more_ticks: int = 0, behind: int = 0) -> ZoneView:
    """A zone in a shard of its own, as if it had been read from a log. Nothing in it is signed."""
    drawn = demand_wh(terms)
    last = int(NOW_S // STEP_S) + 1 - LEAD
    measured = range(last - 2 * 96, last + 1 - behind)
    row = ZoneRow(zone, terms.plan_digest, "CHF", terms.tick, measured[0])
    table = ZoneTable.from_rows([row])
    columns = PriceColumns(table, len(measured))
    for n, own in zip(measured, rows_of(terms, drawn, measured, more_ticks), strict=True):
        columns.write(n, own, table, (n + 1) * STEP_S + 61.0, None)
    opened = open_shard(zone, table, interval=measured[-1], interval_s=STEP_S, lead=LEAD, signer=SIGNER)
    totals = np.array([[int(terms.epsilon_micro.sum()) * 2], [int(terms.rho_micro.sum()) * 2]])
    head = ShardHead(opened, table, np.zeros((1, 32), np.uint8), totals)
    shard = ShardView(head, SIGNER.public_key, columns, measured[0], measured[-1])
    expected = terms.curve.price_ticks(drawn)[(np.arange(96) + LEAD - MIDNIGHT) % 96]
    shown = replace(terms, forecast_ticks=expected)
    return ZoneView(shard, row, ZoneDisplay(timezone=ZURICH, country="CH", title=title), lambda _: shown)


def town_zones(terms: ReleaseTerms) -> dict[str, ZoneView]:
    """Seefeld and a few more zones; one of them stands still."""
    names = {"altstetten": "Altstetten", "hoengg": "Höngg", "oerlikon": "Oerlikon", "wiedikon": "Wiedikon"}
    zones = {"seefeld": view_of(terms, "seefeld", "Zürich Seefeld")}
    for n, (zone, title) in enumerate(names.items()):
        zones[zone] = view_of(terms, zone, title, more_ticks=61 * n, behind=3 if zone == "oerlikon" else 0)
    return zones


def operator_facts(zones: dict[str, ZoneView]) -> ServiceStatus:
    reasons = {"oerlikon": "the log has lost tiles up to 141: repair it first"}
    report: dict[str, object] = {"interval_s": STEP_S, "up_to_date": 4, "blocked": 1, "unfinished": 0}
    report |= {"reasons": reasons, "warnings": warn_of_household_counts({"hoengg": 40_000}, {"hoengg": 26_300})}
    clients = [
        ApiClient(id="head-end-1", zones=frozenset(zones)),
        ApiClient(id="control-room", zones=frozenset(), is_operator=True),
    ]
    counts = {"accepted": 6_912_440, "late": 318, "refused": 12}
    return service_status(
        [view.shard for view in zones.values()],
        {},
        display_of=lambda zone: zones[zone].display,
        now_s=NOW_S,
        grace_s=60,
        reading_counts=counts,
        heartbeat=(238.0, report),
        worker_beat=(4.0, {"damaged_files": 0, "oldest_readings_age_s": 600_000.0}),
        clients=clients,
    )


def make_pages() -> dict[str, str]:
    """Every page in every language: the English one by its name, the German one with `-german`."""
    zones = town_zones(town())
    view, facts = zones["seefeld"], operator_facts(zones)
    pages = {}
    for end, language in (("", ENGLISH), ("-german", GERMAN)):
        pages |= {
            f"zones{end}": zones_page(zones.values(), NOW_S, BASE_URL, language=language),
            f"zone{end}": zone_page(view, NOW_S, BASE_URL, view.key, language),
            f"plan{end}": plan_page(view, NOW_S, BASE_URL, view.key, language),
            f"operator{end}": operator_page(facts, ServiceSettings(), language),
        }
    return pages


def shoot(html: Path, png: Path, *, width: int, dark: bool) -> None:
    """A picture of a page as wide as a phone or a desk, cut at its end."""
    framed = html.with_name(f"framed-{html.name}")
    framed.write_text(
        f'<body style="margin:0"><iframe src="{html.name}" style="border:0" width="{width}" height="9000"></iframe>'
    )
    command = ["/usr/bin/chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"]
    command += [f"--window-size={max(width, 500)},9000", f"--screenshot={png}", "--force-device-scale-factor=1"]
    command += ["--blink-settings=preferredColorScheme=0"] if dark else []
    subprocess.run([*command, framed.as_uri()], check=True, capture_output=True, timeout=120)  # noqa: S603
    image = Image.open(png).convert("RGB").crop((0, 0, width, 9000))
    paper = image.getpixel((2, 8990))
    box = ImageChops.difference(image, Image.new("RGB", image.size, paper)).getbbox()
    image.crop((0, 0, width, min(9000, (box or (0, 0, 0, 8960))[3] + 40))).quantize(
        256, kmeans=3, dither=Image.Dither.NONE
    ).save(png, optimize=True)


def crop_first_screen(page: Path, png: Path) -> None:
    """The upper part of the picture of a page, without its empty margins, for the README."""
    image = Image.open(page).convert("RGB")
    image = image.crop((0, 0, image.width, min(850, image.height)))
    box = ImageChops.difference(image, Image.new("RGB", image.size, image.getpixel((2, 2)))).getbbox()
    left, _, right, _ = box or (0, 0, image.width, image.height)
    image = image.crop((max(0, left - 40), 0, min(image.width, right + 40), image.height))
    image.quantize(256, kmeans=3, dither=Image.Dither.NONE).save(png, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures of the pages, from a made-up day.")
    parser.add_argument("--dark", type=Path, help="All pages into this folder, as at night.")
    asked = parser.parse_args()
    folder: Path = asked.dark or IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        for name, html in make_pages().items():
            if not asked.dark and name not in IN_DOCS:
                continue
            file = Path(made) / f"{name}.html"
            file.write_text(html, encoding="utf-8")
            for device, width in (("desktop", 1280), ("phone", 390)):
                shoot(file, folder / f"{name}-{device}.png", width=width, dark=asked.dark is not None)
    crop_first_screen(folder / "zone-desktop.png", folder / "zone-top.png")


if __name__ == "__main__":
    main()
