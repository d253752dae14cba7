"""The line of awk that turns an open weather file into a public series, as the page has it."""

import re
import subprocess
from pathlib import Path

from murmurate.service.operator_api.public_inputs import parse_series

PAGE = Path(__file__).parents[3] / "docs/reference/http-and-mqtt-api.md"
DOWNLOADED = """STATIONS_ID;MESS_DATUM;QN_9;TT_TU;RF_TU;eor
       5906;2026111805;    3;  -4.2;  91.0;eor
       5906;2026111806;    3;-999.0;-999.0;eor
       5906;2026111807;    3;   0.4;  88.0;eor
"""


def test_hours_of_the_weather_service_become_a_series_and_what_was_not_measured_is_left_out(tmp_path):
    (command,) = re.findall(r"^\$ (awk .*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (tmp_path / "produkt_tu_stunde.txt").write_text(DOWNLOADED, encoding="utf-8")
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    at_five = 1_794_978_000 // 3600
    assert parse_series((tmp_path / "temperature.csv").read_bytes(), 3600) == {at_five: -4200, at_five + 2: 400}
