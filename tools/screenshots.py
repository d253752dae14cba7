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
from murmurate.public_log.record import RecordKind
from murmurate.service.auth import ApiClient
from murmurate.service.log_reader.zone_view import Price, ZoneView
from murmurate.service.operator_api.page import operator_page
from murmurate.service.operator_api.status import ServiceStatus, service_status
from murmurate.service.public_api.pages.zone_page import zone_page
from murmurate.service.settings import ZoneDisplay
from murmurate.units import IntArray

IMAGES = Path(__file__).parents[1] / "docs" / "images"
ZURICH = ZoneInfo("Europe/Zurich")
NOW_S = datetime(2026, 11, 14, 14, 20, tzinfo=ZURICH).timestamp()
STEP_S, LEAD = 900, 2
MIDNIGHT = int(datetime(2026, 11, 14, tzinfo=ZURICH).timestamp()) // STEP_S
FORECAST, WITHHELD = 27, 38  # intervals of the local day
BASE_URL = "https://prices.example.ch"
KEY = "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"


def town() -> ReleaseTerms:
    """The example zone grown to 4,000 flats, with `shift` noise: a zone where the noise is worth its price."""
    text = (
        EXAMPLE_ZONE_FILE.replace('"harbour"', '"seefeld"')
        .replace('"EUR"', '"CHF"')
        .replace("count = 800", "count = 4000")
    )
    text = text.replace("Europe/Lisbon", "Europe/Zurich")
    text = text.replace('calibration = "range" ', 'calibration = "shift" ').replace('"0.0002"', '"0.00012"')
    return ReleaseTerms.from_json(make_plan(parse_zone(text)).to_json())


def demand_wh(terms: ReleaseTerms) -> IntArray:
    """A day with a morning and an evening peak [local interval], around what the plan expects."""
    hours = np.arange(96) / 4
    level = float(terms.curve.tick) * float(terms.forecast_ticks.mean())
    mean_kwh = (level - 0.08) / 0.00012
    shape = 0.66 + 0.42 * np.exp(-(((hours - 7.6) / 1.3) ** 2)) + 0.7 * np.exp(-(((hours - 18.9) / 2.2) ** 2))
    shape += 0.16 * np.exp(-(((hours - 12.2) / 1.2) ** 2)) - 0.12 * np.exp(-(((hours - 3.2) / 2.4) ** 2))
    drawn: IntArray = np.rint(1000 * mean_kwh * shape / shape.mean()).astype(np.int64)
    return drawn


def prices_of(terms: ReleaseTerms, drawn: IntArray, first: int, decided: int) -> dict[int, Price]:
    """Two days of prices, of which one is a forecast and one is withheld."""
    slots = np.arange(first - LEAD, decided + 1 - LEAD) % 96
    core_wh = terms.core_wh[slots] if terms.distribution is NoiseDistribution.HUBER else None
    noise = SeededNoise(20261114).draw(terms.distribution, terms.scale_wh[slots], core_wh)
    odd = {MIDNIGHT + FORECAST: RecordKind.FORECAST, MIDNIGHT + WITHHELD: RecordKind.WITHHELD}
    prices = {}
    for n, extra in zip(range(first, decided + 1), noise.tolist(), strict=True):
        kind = odd.get(n, RecordKind.MEASURED)
        wh = int(drawn[(n - MIDNIGHT) % 96]) + (extra if kind is RecordKind.MEASURED else 0)
        ticks = None if kind is RecordKind.WITHHELD else int(terms.curve.price_ticks(wh))
        slot = (n - LEAD) % 96
        scale_wh, core_wh = (
            (float(terms.scale_wh[slot]), int(terms.core_wh[slot])) if kind is RecordKind.MEASURED else (None, 0)
        )
        prices[n] = Price(n, kind, ticks, terms.curve.tick, scale_wh, (n + 1 - LEAD) * STEP_S + 61.0, core_wh)
    return prices


def seefeld(terms: ReleaseTerms) -> ZoneView:
    drawn = demand_wh(terms)
    decided = int(NOW_S // STEP_S) + 1
    first = decided - 2 * 96
    expected = terms.curve.price_ticks(drawn).tolist()
    return ZoneView(
        zone="seefeld",
        display=ZoneDisplay(timezone=ZURICH, country="CH", title="Zürich Seefeld"),
        currency="CHF",
        tick=terms.curve.tick,
        interval_s=STEP_S,
        lead_intervals=LEAD,
        plan_digest=terms.plan_digest,
        opening_key=KEY,
        key=KEY,
        seq=decided - first + 1,
        opened_s=first * STEP_S - 7200.0,
        first_priced=first,
        last_decided=decided,
        prices=prices_of(terms, drawn, first, decided),
        expected_ticks=tuple(expected[(n - MIDNIGHT) % 96] for n in range(96)),
        total_epsilon_micro=int(terms.epsilon_micro.sum()) * 2,
        total_rho_micro=int(terms.rho_micro.sum()) * 2,
        terms=terms,
    )


def neighbours(view: ZoneView) -> dict[str, ZoneView]:
    """A few more zones; one of them stands still."""
    names = {"altstetten": "Altstetten", "hoengg": "Höngg", "oerlikon": "Oerlikon", "wiedikon": "Wiedikon"}
    zones = {"seefeld": view}
    for n, (zone, title) in enumerate(names.items()):
        behind = 3 if zone == "oerlikon" else 0
        kept = {
            at: replace(price, ticks=None if price.ticks is None else price.ticks + 61 * n)
            for at, price in view.prices.items()
        }
        decided = view.last_decided - behind
        prices = {at: price for at, price in kept.items() if at <= decided}
        display = replace(view.display, title=title)
        zones[zone] = replace(view, zone=zone, display=display, last_decided=decided, prices=prices)
    return zones


def operator_facts(zones: dict[str, ZoneView]) -> ServiceStatus:
    reasons = {"oerlikon": "the log has lost entries that were public: repair it first"}
    report: dict[str, object] = {"interval_s": STEP_S, "up_to_date": 4, "blocked": 1, "unfinished": 0}
    report["reasons"] = reasons
    clients = [
        ApiClient(id="head-end-1", zones=frozenset(zones)),
        ApiClient(id="control-room", zones=frozenset(), is_operator=True),
    ]
    counts = {"accepted": 6_912_440, "late": 318, "refused": 12}
    return service_status(
        zones, {}, now_s=NOW_S, grace_s=60, reading_counts=counts, heartbeat=(238.0, report), clients=clients
    )


def shoot(html: Path, png: Path, *, width: int, dark: bool) -> None:
    """A picture of a page as wide as a phone or a desk, cut at its end."""
    framed = html.with_name(f"framed-{html.name}")
    framed.write_text(
        f'<body style="margin:0"><iframe src="{html.name}" style="border:0" width="{width}" height="6000"></iframe>'
    )
    command = ["/usr/bin/chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"]
    command += [f"--window-size={max(width, 500)},6000", f"--screenshot={png}", "--force-device-scale-factor=1"]
    command += ["--blink-settings=preferredColorScheme=0"] if dark else []
    subprocess.run([*command, framed.as_uri()], check=True, capture_output=True, timeout=120)  # noqa: S603
    image = Image.open(png).convert("RGB").crop((0, 0, width, 6000))
    paper = image.getpixel((2, 5990))
    box = ImageChops.difference(image, Image.new("RGB", image.size, paper)).getbbox()
    image.crop((0, 0, width, min(6000, (box or (0, 0, 0, 5960))[3] + 40))).quantize(
        256, kmeans=3, dither=Image.Dither.NONE
    ).save(png, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures of the pages, from a made-up day.")
    parser.add_argument("--dark", type=Path, help="Into this folder, as at night.")
    asked = parser.parse_args()
    folder: Path = asked.dark or IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    zones = neighbours(seefeld(town()))
    pages = {
        "zone": zone_page(zones["seefeld"], NOW_S, BASE_URL),
        "operator": operator_page(operator_facts(zones)),
    }
    with tempfile.TemporaryDirectory() as made:
        for name, html in pages.items():
            file = Path(made) / f"{name}.html"
            file.write_text(html, encoding="utf-8")
            for device, width in (("desktop", 1280), ("phone", 390)):
                shoot(file, folder / f"{name}-{device}.png", width=width, dark=asked.dark is not None)


if __name__ == "__main__":
    main()
