"""`murmurate demo`: it runs, it prints what an attacker learned, and it leaves nothing behind."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import psycopg
import pytest

from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import NoiseDistribution, SeededNoise
from murmurate.service.demo.simulated_town import DemoZone, attack_homes, demand_from_prices
from tests.support.databases import SERVER
from tests.support.ports import free_port


def databases():
    with psycopg.connect(f"{SERVER}/postgres") as connection:
        query = "SELECT datname FROM pg_database WHERE datname LIKE 'murmurate_demo%'"
        return {name for (name,) in connection.execute(query)}


def test_it_plays_and_leaves_nothing_behind(tmp_path):
    before = databases()
    for slowdown in (1, 3, 9):  # a busy machine may need more time for each interval
        speed, minutes = 120 / slowdown, 0.65 * slowdown
        options = ["--minutes", f"{minutes}", "--speed", f"{speed}", "--homes", "200", "--port", str(free_port())]
        command = [sys.executable, "-m", "murmurate", "demo", "--postgres", f"{SERVER}/postgres", *options]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if re.search(r"[345] prices were published", done.stdout):
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[345] prices were published", done.stdout)
    alone, prices, exact = (float(part) for part in re.findall(r"(\d+\.\d)%", done.stdout))
    assert exact > max(alone, prices)
    assert databases() == before
    assert not list(tmp_path.iterdir())


def test_without_a_server_it_says_what_to_do(tmp_path):
    command = [sys.executable, "-m", "murmurate", "demo", "--postgres", "postgresql://nobody@127.0.0.1:1/none"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--postgres" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def evening():
    """A demo zone of 300 homes, simulated from 15:00 to 21:00, and its release terms."""
    text = EXAMPLE_ZONE_FILE.replace("count = 800", "count = 300").split('\n[[households]]\nname = "fish market"')[0]
    plan = make_plan(parse_zone(text))
    zone = DemoZone(kind=plan.zone.kinds[0], first_interval=60, rng=np.random.default_rng(5))
    for _ in range(24):
        zone.simulate_interval()
    return zone, ReleaseTerms.from_json(plan.to_json())


def test_without_noise_a_price_tells_what_an_exact_rate_tells(evening):
    zone, terms = evening
    bare = replace(
        terms, distribution=NoiseDistribution.LAPLACE, scale_wh=np.full(96, 1.0), core_wh=np.zeros(96, np.int64)
    )
    demand_wh = np.array(zone.energy_wh).sum(axis=1)
    found = attack_homes(zone, demand_wh, bare, np.arange(60, 84))
    assert found.with_prices == found.with_exact_rates
    assert found.with_exact_rates > found.model_only + 0.05


def test_with_the_noise_of_the_plan_a_price_tells_next_to_nothing(evening):
    zone, terms = evening
    assert terms.distribution is NoiseDistribution.HUBER
    seeded = SeededNoise(6)
    demand_wh = np.array(zone.energy_wh).sum(axis=1)
    gains = []
    for _ in range(20):
        noise = seeded.draw(terms.distribution, terms.scale_wh[60:84], terms.core_wh[60:84])
        found = attack_homes(zone, demand_wh + noise, terms, np.arange(60, 84))
        gains.append(found.with_prices - found.model_only)
    assert abs(np.mean(gains)) < 0.01


def test_a_price_is_read_back_to_its_tick(evening):
    _, terms = evening
    demand_wh = np.arange(1_000, 300_000, 7_919)
    ticks = terms.curve.price_ticks(demand_wh)
    back = demand_from_prices(ticks, terms, 300_000)
    assert (terms.curve.price_ticks(back) == ticks).all()
    assert np.abs(back - demand_wh).max() <= 60  # a tick is 50 Wh here
