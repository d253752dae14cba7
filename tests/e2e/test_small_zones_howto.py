"""docs/how-to/small-zones.md runs as written: from an empty folder to a verified price, without a meter."""

from __future__ import annotations

import re
import subprocess
import time

import httpx
import numpy as np

from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE
from murmurate.service.settings import load_settings
from tests.support.operator_cli import DOCS, an_operator, documented_commands
from tests.support.ports import free_port
from tests.support.waiting import wait_until

PAGE = "how-to/small-zones.md"
STEP_S, SPEED = 900, 60
SECTION = "3. From an empty folder to a verified price"


def region_csv():
    """Six weeks of a public load, in steps of a quarter hour."""
    slots = np.arange(42 * 96)
    kwh = 60 + 25 * np.sin((slots % 96 - 33) * 2 * np.pi / 96) + np.random.default_rng(1).normal(size=len(slots))
    starts = np.datetime64("2025-01-06T00:00:00") + np.timedelta64(STEP_S, "s") * slots
    return "\n".join(["start,kwh", *(f"{start}Z,{value:.3f}" for start, value in zip(starts, kwh, strict=True))])


def test_a_village_without_meters_gets_served_and_verified_prices(tmp_path):
    """But for the ports, and for the clock, which begins in the past and runs faster: a quarter hour takes 15 s."""
    (lines,) = re.findall(r"```toml\n(.*?)```", (DOCS / PAGE).read_text(encoding="utf-8"), flags=re.DOTALL)
    ports = {"8080": str(free_port()), "8081": str(free_port())}
    first_s = int(time.time()) // STEP_S * STEP_S - 12 * 3600
    zone = re.sub(r"^promise = .*$", 'promise = ["any 24 h: epsilon 1"]', EXAMPLE_ZONE_FILE, flags=re.MULTILINE)
    with an_operator(tmp_path) as operator:
        operator.write("zone.toml", zone.split("[forecast]")[0].replace("count = 800", "count = 80") + lines)
        operator.write("region.csv", region_csv())
        service = None
        try:
            for command, _ in documented_commands(PAGE, SECTION):
                line = re.sub("8080|8081", lambda port: ports[port.group()], command)
                if line.endswith(" &"):
                    words = line.removesuffix(" &").split()
                    service = subprocess.Popen(words, cwd=tmp_path, env=operator.environment, stderr=subprocess.DEVNULL)
                    assert wait_until(lambda: has_prices(ports["8080"]))
                elif line == "murmurate zone open plan.json":
                    shown = operator.run(f"{line} --first {time.strftime('%FT%TZ', time.gmtime(first_s))}")
                    assert "meter" not in shown
                else:  # a busy machine falls behind this clock, and status says so
                    shown = operator.run(f"{line} || test $? = 1" if line.startswith("murmurate status") else line)
                    check_output(line, shown)
                if "--example" in line:
                    set_clock_and_ports(tmp_path / "service.toml", first_s, ports)
                    assert load_settings(tmp_path / "service.toml").meters is None
            check_no_reading_is_taken_or_missed(operator, f"http://127.0.0.1:{ports['8081']}")
        finally:
            if service is not None:
                service.terminate()
                service.wait(180)
        assert service.returncode == 0
        assert not list((tmp_path / "landing").rglob("*.parquet"))


def set_clock_and_ports(settings, first_s, ports):
    text = re.sub("8080|8081", lambda port: ports[port.group()], settings.read_text())
    text += f"\n[clock]\nsimulated_s = {first_s}\nwall_s = {time.time()}\nspeed = {SPEED}\n"
    settings.write_text(text)


def has_prices(port):
    """Whether the public process shows a public price."""
    try:
        return ",public" in httpx.get(f"http://127.0.0.1:{port}/zones/harbour/history.csv").text
    except httpx.TransportError:
        return False


def check_output(command, shown):
    if command.startswith("murmurate status"):
        assert "no reading is expected" in shown
        assert "1 public" in shown
        assert not re.search("meter table|head-end|no client|quorum|fallback", shown)
    if command.startswith("murmurate prices"):
        assert "public" in shown
        assert "fallback" not in shown
    if command.startswith("murmurate log verify"):
        assert "Everything holds." in shown


def check_no_reading_is_taken_or_missed(operator, address):
    """A reading is refused with a reason, and no figure is one that an alert about readings or meters fires for."""
    shown = operator.run("murmurate client add head-end --zone harbour --operator")
    secret = re.findall(r"client_secret: *(\S+)", shown)[0]
    form = {"grant_type": "client_credentials", "client_id": "head-end", "client_secret": secret}
    token = httpx.post(f"{address}/auth/token", data=form, timeout=60).raise_for_status().json()["access_token"]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "text/csv"}
    start = time.strftime("%FT%TZ", time.gmtime(time.time() // STEP_S * STEP_S - 13 * 3600))
    reading = f"meter_id,interval_start,energy_wh\n0,{start},250\n"
    answer = httpx.post(f"{address}/readings", content=reading, headers=headers, timeout=60).json()
    assert (answer["accepted"], answer["late"]) == (0, 0)
    assert [refusal["reason"] for refusal in answer["refusals"]] == ["is not a meter of your zones"]
    metrics = httpx.get(f"{address}/metrics", auth=("head-end", secret), timeout=60).raise_for_status().text
    value = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    assert value["murmurate_zones_without_meters"] == "0.0"
    assert all(value[name] == "0.0" for name in value if name.startswith("murmurate_meter_table_not_in_force"))
    assert float(value["murmurate_meter_table_age_seconds"]) < 3600
    assert not any(name.startswith(("murmurate_zone_share_reported{", "murmurate_zone_newest_")) for name in value)
    assert not any(name.startswith("murmurate_intervals_not_aggregated_total{") for name in value)
    assert value['murmurate_zone_releases_24h{kind="fallback",zone="harbour"}'] == "0.0"
