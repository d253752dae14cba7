"""A ZIP file with the layout of CityLearn 2.2b0's wheel and homes that are made up, for tests without a download."""

from __future__ import annotations

import zipfile
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

FOLDER = "citylearn/data/datasets"
MEASURED_HEADER = (
    "month,hour,day_type,daylight_savings_status,indoor_dry_bulb_temperature,non_shiftable_load,dhw_demand"
)
MODELLED_HEADER = "month,hour,day_type,daylight_savings_status,non_shiftable_load,dhw_demand,occupant_count"
PLACES = {  # folder: name of a home's file, first hour
    "citylearn_challenge_2022_phase_all": ("Building_{}.csv", datetime(2016, 7, 31, 23)),  # noqa: DTZ001
    "ca_alameda_county_neighborhood": ("resstock-amy2018-2021-release-1-{}.csv", datetime(2018, 1, 1)),  # noqa: DTZ001
    "tx_travis_county_neighborhood": ("resstock-amy2018-2021-release-1-{}.csv", datetime(2018, 1, 1)),  # noqa: DTZ001
    "vt_chittenden_county_neighborhood": ("resstock-amy2018-2021-release-1-{}.csv", datetime(2018, 1, 1)),  # noqa: DTZ001
}


def write_made_wheel(path: Path, *, hours: int, homes: int = 3, seed: int = 1) -> Path:
    """Write the file. Homes use more while a person is home, which is often not so on workdays from 8 to 17."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (folder, (name, first)) in enumerate(PLACES.items()):
            rng = np.random.default_rng([seed, number])
            times = [first + timedelta(hours=hour) for hour in range(hours)]
            weather = [f"{10 + 8 * rng.normal():.1f},50" for _ in times]
            archive.writestr(f"{FOLDER}/{folder}/schema.json", "{}")
            archive.writestr(f"{FOLDER}/{folder}/pricing.csv", "electricity_pricing\n0.2\n")
            text = "\n".join(["outdoor_dry_bulb_temperature,outdoor_relative_humidity", *weather, ""])
            archive.writestr(f"{FOLDER}/{folder}/weather.csv", text)
            for home in range(1, homes + 1):
                is_measured = folder.startswith("citylearn")
                rows = _made_rows(rng, times, is_measured=is_measured)
                header = MEASURED_HEADER if is_measured else MODELLED_HEADER
                archive.writestr(f"{FOLDER}/{folder}/{name.format(home)}", "\n".join([header, *rows, ""]))
    return path


def _made_rows(rng: np.random.Generator, times: list[datetime], *, is_measured: bool) -> list[str]:
    rows, leaves = [], False
    for time in times:
        if time.hour == 0:
            leaves = bool(rng.random() < (0.8 if time.weekday() < 5 else 0.3))
        people = 0 if leaves and 8 <= time.hour < 17 else 2
        kwh = 0.25 + 0.1 * np.sin(time.hour) ** 2 + (0.4 * people * rng.random() if people else 0.05 * rng.random())
        calendar = f"{time.month},{time.hour + 1},{time.weekday() + 1},0"
        rows.append(f"{calendar},,{kwh:.7f},0.0" if is_measured else f"{calendar},{kwh:.7f},0.0,{people:.1f}")
    return rows
