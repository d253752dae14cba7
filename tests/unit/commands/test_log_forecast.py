"""`murmurate forecast --log`: from a file, a folder or an address to a forecast, and what is refused on the way."""

import json
import re
import shlex
import threading
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from tests.support.logged_demand import play_log, true_demand_wh
from tests.support.predicted_zones import SLOTS, plan_text, public_forecast, zone_text
from tests.support.sample_logs import OLD
from typer.testing import CliRunner

from murmurate.cli import app
from murmurate.commands.forecast import make_forecast
from murmurate.errors import MurmurateError
from murmurate.operations.log_files import FolderWriter, document_name, tile_name
from murmurate.planning.plan import make_plan
from murmurate.planning.zone_file import parse_zone
from murmurate.prediction.public_forecast import ConsentedSample, PublicForecast
from murmurate.public_log.noised_demand import DemandTerms

HOURS, HOMES = 36 * SLOTS, 3001
PLAN, SMALL = plan_text(households=3000, elasticity=0.1), plan_text(households=1000)
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "zone-file.md"


@cache
def played(text=PLAN, homes=HOMES, hours=HOURS):
    response = DemandTerms.from_json(text).prediction.price_response
    return play_log({"harbour": text}, hours, households=homes, response=response, missing=set(range(90, 100)))


def write_log(path, *, shard=None, plans=(PLAN,)):
    """The lines of the zone, with its plan in front, as a service sends them."""
    path.write_text("\n".join([*plans, *(shard or played()).lines("harbour")]) + "\n", encoding="utf-8")
    return path


def write_folder(path):
    writer, shard = FolderWriter(path), played()
    writer.add_file(document_name(json.loads(PLAN)["digest"]), PLAN.encode())
    for digest, table in shard.tables.items():
        writer.add_file(document_name(digest), table.text.encode())
    for tile in shard.tiles:
        writer.add_file(tile_name("east", tile.header.seq), tile.to_bytes())
    return path


def run(*options):
    """Exit status, and what was printed, in one line."""
    done = CliRunner().invoke(app, ["forecast", *map(str, options)])
    words = re.sub(r"[\s│]+", " ", done.output) if done.exception is None else f"{done.output} {done.exception}"
    return done.exit_code, words


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_forecast(path):
    return PublicForecast.from_json((path / "forecast.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_forecast_from_a_log_states_what_the_sample_of_its_plan_has_spent(here):
    forecast = replace(public_forecast(), sample=ConsentedSample(700, Fraction(3, 2)))
    plan = make_plan(parse_zone(zone_text(3000), read_forecast=lambda _: forecast))
    text = json.dumps(json.loads(plan.to_json()), separators=(",", ":"))
    write_log(here / "log.jsonl", shard=played(text), plans=(text,))
    assert run("--log", "log.jsonl", "--zone", "harbour")[0] == 0
    assert read_forecast(here).sample == forecast.sample


@pytest.mark.slow
def test_a_log_gives_the_forecast_of_the_demand_behind_it_with_the_command_of_the_page(here):
    write_log(here / "log.jsonl")
    command = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if "forecast --log" in line)
    status, shown = run(*shlex.split(command)[2:])
    assert status == 0
    assert "854 of its 864 intervals have a noised demand: 36 days" in shown
    assert re.search(r"The noise alone is [\d.]+ %, as the plan states", shown)
    assert re.search(r"So it was [\d.]+ % off the demand itself|The noise hides the error", shown)
    assert "elasticity = 0.1 reference_price = " in shown
    assert "first key of the log was trusted" in shown
    made = read_forecast(here)
    assert (made.time_zone, made.demand.slots_per_day) == ("Europe/Lisbon", SLOTS)
    model = DemandTerms.from_json(PLAN).prediction.model
    for day in range(7):  # after the log
        interval = played().head.interval + 1 + SLOTS * day + np.arange(SLOTS)
        expected = [float(made.demand.demand_wh(model.locate(int(at)))[0]) for at in interval]
        assert np.sqrt(np.mean((np.array(expected) / true_demand_wh(interval) - 1) ** 2)) < 0.05


@pytest.mark.slow
def test_a_folder_and_an_address_give_the_same_as_the_lines(here):
    write_log(here / "log.jsonl")
    folder = write_folder(here / "copy")
    handler = partial(SimpleHTTPRequestHandler, directory=here)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        made = []
        for source in ("log.jsonl", folder, f"http://127.0.0.1:{server.server_port}/log.jsonl"):
            status, shown = run("--log", source, "--zone", "harbour", "--key", OLD.public_key)
            assert status == 0, shown
            assert "trusted" not in shown
            made.append(json.loads((here / "forecast.json").read_text(encoding="utf-8")) | {"source": ""})
    finally:
        server.shutdown()
        server.server_close()
    assert made[0] == made[1] == made[2]


@pytest.mark.slow
@pytest.mark.long
def test_the_error_stays_near_the_true_one_where_the_noise_is_large(here):
    """A third of the homes have three times as much noise beside their demand."""
    errors = {}
    for name, text, homes in (("large", PLAN, HOMES), ("small", SMALL, 1001)):
        hours = HOURS if name == "large" else 50 * SLOTS
        write_log(here / "log.jsonl", shard=played(text, homes, hours), plans=(text,))
        status, shown = run("--log", "log.jsonl", "--zone", "harbour")
        assert status == 0, shown
        noise = float(re.search(r"noise alone is ([\d.]+) %", shown)[1])
        errors[name] = (noise / 100, read_forecast(here).error)
    assert errors["small"][0] > 2 * errors["large"][0] > 0.04
    assert max(error for _, error in errors.values()) < 0.08


@pytest.mark.slow
def test_a_plan_is_made_with_it(here):
    write_log(here / "log.jsonl")
    assert run("--log", "log.jsonl", "--zone", "harbour")[0] == 0
    zone = parse_zone(zone_text(), read_forecast=lambda _: read_forecast(here))
    assert make_plan(zone).prediction.predicted_error < 0.1


def changed(lines):
    """A log in which a price was changed after it was signed."""
    edited = json.loads(lines[100])
    edited["row"]["price_ticks"] += 1
    return [*lines[:100], json.dumps(edited, sort_keys=True, separators=(",", ":"))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prepare", "options", "says"),
    [
        (changed, [], "nothing is made from it. murmurate log verify log.jsonl lists everything"),
        (lambda lines: lines[:300], [], r"12\.0 days with a noised demand .*must have 35 days or more"),
        (lambda lines: lines[1:100], [], "plan is .* which log.jsonl does not hold: must be given: --plan"),
        (lambda lines: lines[:50] + lines[60:100], [], "not right"),
        (lambda lines: lines[:100], ["--zone", "hill"], "zone hill is not in log.jsonl"),
        (lambda lines: lines[:100], ["--key", "ab" * 32], "not right .*key"),
        (lambda lines: lines[:100], ["--interval-minutes", "15"], "must be 60 as in the log"),
        (lambda lines: lines, ["--time-zone", "Mars/Crater"], "Mars/Crater"),
        (lambda lines: lines, ["--h25", "3500"], "--h25 and --log"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_to_do(here, prepare, options, says):
    lines = prepare(write_log(here / "log.jsonl").read_text(encoding="utf-8").splitlines())
    (here / "log.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    status, shown = run("--log", "log.jsonl", "--zone", "harbour", *options)
    assert status != 0
    assert re.search(says, shown), shown
    assert not (here / "forecast.json").exists()


def test_what_is_no_log_is_refused(here):
    (here / "log.jsonl").write_text("no log\n", encoding="utf-8")
    with pytest.raises(MurmurateError, match="is no public log"):
        make_forecast(log="log.jsonl", zone="harbour")


def test_a_zone_must_be_named(here):
    write_log(here / "log.jsonl")
    status, shown = run("--log", "log.jsonl")
    assert status != 0
    assert "--zone harbour" in shown


@pytest.mark.slow
def test_a_plan_beside_the_log_and_its_weather_are_read(here):
    write_log(here / "log.jsonl", plans=())
    (here / "plan.json").write_text(PLAN, encoding="utf-8")
    (here / "days.txt").write_text("2025-12-01\n", encoding="utf-8")
    first = played().tiles[1].header.interval
    rows = [f"{np.datetime64(3600 * (first + n), 's')}Z,{10 + 5 * np.sin(n / 50):.2f},90" for n in range(HOURS)]
    (here / "weather.csv").write_text("\n".join(["start,temperature_c,irradiance", *rows]), encoding="utf-8")
    more = ("--weather", "weather.csv", "--holidays", "days.txt")
    status, shown = run("--log", "log.jsonl", "--zone", "harbour", "--plan", "plan.json", *more)
    assert status == 0, shown
    made = read_forecast(here)
    assert made.holidays == (20_423,)
    assert (made.demand.usual_cold_k > 1).all()
    assert np.allclose(made.demand.usual_irradiance, 90)
