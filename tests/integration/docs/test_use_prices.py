"""docs/how-to/use-prices.md: each block is used as its program uses it, and reads the prices of the log."""

import json
import re
import subprocess
from datetime import UTC, datetime
from fractions import Fraction
from html import unescape
from itertools import pairwise
from typing import Any, NamedTuple

import httpx
import jinja2
import pytest
import yaml
from tests.e2e.conftest import clients  # noqa: F401
from tests.support.api_servers import LEAD, STEP_S, plan_of, public_process
from tests.support.databases import database
from tests.support.documented_commands import commands_of, run_in_shell
from tests.support.operator_cli import DOCS
from tests.support.postgres_stores import ShardWriter

from murmurate.service.public_api.notifications import zone_topic
from murmurate.service.storage.migrate import migrate_database

PAGE = DOCS / "how-to" / "use-prices.md"
TEXT = PAGE.read_text(encoding="utf-8")
ADDRESS = "https://prices.example"
FIRST = int(datetime(2026, 11, 11, 23, tzinfo=UTC).timestamp()) // STEP_S
NOW = int(datetime(2026, 11, 14, 11, 10, tzinfo=UTC).timestamp()) // STEP_S


class Place(NamedTuple):
    """A running service of the zone of the page, and the final price of each interval."""

    client: httpx.Client
    prices: dict[int, Fraction]

    def here(self, text: str) -> str:
        return text.replace(ADDRESS, str(self.client.base_url).rstrip("/"))

    def get(self, address: str) -> Any:
        return self.client.get(self.here(address)).raise_for_status().json()

    def rows(self, *statuses: str) -> list[tuple[str, str, Fraction]]:
        """Start, end and value of what is known of today and tomorrow."""
        rows = self.get(f"{ADDRESS}/zones/harbour/prices")["prices"]
        return [(r["start"], r["end"], exact(r["value"])) for r in rows if r["status"] in statuses]


def exact(value: float) -> Fraction:
    return Fraction(repr(value))


def block(title: str, kind: str = "yaml") -> str:
    """The code of a section of the page."""
    (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", TEXT, flags=re.DOTALL | re.MULTILINE)
    return re.search(rf"```{kind}\n(.*?)```", section, flags=re.DOTALL)[1]


def serve(currency: str):
    with database("log") as dsn:
        migrate_database(dsn, "log")
        writer = ShardWriter(dsn, {"harbour": plan_of("harbour", currency)}, first=FIRST - LEAD, lead=LEAD)
        for n in range(FIRST - LEAD - 1, NOW):
            writer.write(1, None if n % 9 == 1 else 400_000 + n % 96 * 1000)
        writer.close()
        tick = Fraction(writer.terms["harbour"].tick)
        prices = {n: ticks * tick for n, ticks in writer.prices("harbour").items() if ticks is not None}
        with public_process(dsn, NOW * STEP_S + 60, timezone="Europe/Berlin", url=ADDRESS) as (client, _):
            yield Place(client, prices)


@pytest.fixture(scope="module")
def place():
    yield from serve("EUR")


@pytest.fixture(scope="module")
def place_in_dollars():
    yield from serve("USD")


def interval_of(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) // STEP_S


def test_the_document_of_prices_is_the_log(place):
    final = {interval_of(start): price for start, _, price in place.rows("final")}
    today = int(datetime(2026, 11, 13, 23, tzinfo=UTC).timestamp()) // STEP_S
    assert final == {n: price for n, price in place.prices.items() if n >= today}
    assert len(final) + len(place.rows("expected")) == 192


def check_rates(rates: Any) -> None:
    """Raise AssertionError unless evcc's `api.Rates` can be decoded from it: two times with a zone, and a float."""
    for rate in rates:
        assert rate.keys() == {"start", "end", "value"}
        assert all(datetime.fromisoformat(rate[name]).tzinfo for name in ("start", "end"))
        assert type(rate["value"]) is float
    assert all(before["end"] <= after["start"] for before, after in pairwise(rates))


def test_evcc_plans_two_days_from_now_on(place):
    tariffs = yaml.safe_load(block("evcc"))["tariffs"]
    assert (tariffs["currency"], tariffs["grid"]["type"], tariffs["grid"]["forecast"]["source"]) == (
        "EUR",
        "custom",
        "http",
    )
    rates = place.get(tariffs["grid"]["forecast"]["uri"])
    check_rates(rates)
    from_now = [row for row in place.rows("final", "expected") if interval_of(row[0]) >= NOW]
    assert [(rate["start"], rate["end"], exact(rate["value"])) for rate in rates][: len(from_now)] == from_now
    assert len(rates) == 192


def test_home_assistant_has_the_price_now_and_the_cheapest_hours(place):
    now, cheapest = yaml.safe_load(block("Home Assistant"))["rest"]
    shown = {}
    for resource in (now, cheapest):
        (sensor,) = resource["sensor"]
        value_json = place.get(resource["resource"])
        assert all(name in value_json for name in sensor["json_attributes"])
        for names in ({"value_json": value_json}, {"value_json": {"status": 404, "detail": "no price now"}}):
            available = jinja2.Template(sensor["availability"]).render(names)
            assert available == str(names["value_json"] is value_json)
        shown[sensor["name"]] = jinja2.Template(sensor["value_template"]).render(value_json=value_json)
        assert sensor.get("unit_of_measurement", f"{value_json['currency']}/kWh") == f"{value_json['currency']}/kWh"
    assert Fraction(shown["Electricity price"]) == place.prices[NOW]
    assert NOW <= interval_of(shown["Cheapest three hours"]) < NOW + 192


def test_batcontrol_reads_all_prices_as_those_of_an_evcc(place):
    utility = yaml.safe_load(block("batcontrol"))["utility"]
    assert utility["type"] == "evcc"
    rates = place.get(utility["url"])["rates"]
    check_rates(rates)
    assert [(rate["start"], rate["end"], exact(rate["value"])) for rate in rates] == place.rows("final", "expected")


def octopus_rows(pages: list[Any]) -> list[tuple[str, str, Fraction]]:
    rows = [row for page in pages for row in page["results"]][::-1]
    return [(row["valid_from"], row["valid_to"], exact(row["value_inc_vat"]) / 100) for row in rows]


def test_predbat_reads_all_prices_in_cents(place):
    url, pages = yaml.safe_load(block("Predbat"))["rates_import_octopus_url"], []
    for address in (url, f"{url}&page_size=80"):
        pages, following = [], address
        while following and len(pages) < 3:  # it reads no more
            pages.append(place.get(following))
            following = pages[-1]["next"]
        assert octopus_rows(pages) == place.rows("final", "expected")


def test_teslamateagile_reads_the_final_prices_of_a_charge(place):
    environment = yaml.safe_load(block("TeslaMateAgile"))["environment"]
    base, product, tariff, region = (
        environment[f"Octopus__{name}"] for name in ("BaseUrl", "ProductCode", "TariffCode", "RegionCode")
    )
    path = f"{base}/products/{product}/electricity-tariffs/{tariff}-{region}/standard-unit-rates"
    period = "period_from=2026-11-13T20:00:00.0000000Z&period_to=2026-11-14T05:00:00.0000000Z"
    rows = octopus_rows([place.get(f"{path}?{period}")])
    start = int(datetime(2026, 11, 13, 20, tzinfo=UTC).timestamp()) // STEP_S
    expected = {n: place.prices[n] for n in range(start, start + 36) if n in place.prices}
    assert {interval_of(begin): price for begin, _, price in rows} == expected


def test_awattar_has_euros_per_megawatt_hour_from_now_on(place):
    (address,) = re.findall(r"`(\S+/v1/marketdata)`", TEXT)
    data = place.get(address)["data"]
    assert {row["start_timestamp"] // 1000 // STEP_S: exact(row["marketprice"]) / 1000 for row in data} == {
        n: price for n, price in place.prices.items() if n >= NOW
    }
    period = f"start={NOW * STEP_S * 1000 - 7_200_000}&end={NOW * STEP_S * 1000}"
    assert len(place.get(f"{address}?{period}")["data"]) == sum(n in place.prices for n in range(NOW - 8, NOW))


@pytest.mark.clients
def test_python_midas_reads_every_final_price(place_in_dollars, clients, tmp_path):  # noqa: F811
    (tmp_path / "read.py").write_text(place_in_dollars.here(block("MIDAS", "python")))
    done = subprocess.run([clients.python, tmp_path / "read.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = re.findall(r"^(\S+ \S+) (\S+) (\S+)$", done.stdout, flags=re.MULTILINE)
    assert {unit for _, _, unit in rows} == {"$/kWh"}
    assert [(interval_of(start), Fraction(value)) for start, value, _ in rows] == [
        (interval_of(start), price) for start, _, price in place_in_dollars.rows("final")
    ]


@pytest.mark.curl
def test_each_line_of_curl_answers_and_the_topic_is_that_of_the_zone(place, tmp_path):
    (subscribe, *fetches) = [command for command, _ in commands_of(PAGE)]
    assert subscribe.split("-t ")[1] == zone_topic("harbour", "price")
    answers = []
    for command in fetches:
        done = run_in_shell(place.here(command.replace("curl", "curl --fail --silent --noproxy '*'")), tmp_path)
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout)
    prices, history, cheapest = json.loads(answers[0]), answers[1].splitlines(), json.loads(answers[2])
    assert len(prices["prices"]) == 192
    assert len(history) == 1 + 192
    assert datetime.fromisoformat(cheapest["end"]) <= datetime(2026, 11, 15, 6, tzinfo=UTC)
    (zone,), of_shard = (json.loads(answer) for answer in answers[3:])
    (row,) = of_shard["prices"]
    assert (zone["zone"], zone["shard"]) == (row["zone"], of_shard["shard"]) == ("harbour", "quay")
    assert exact(row["price"]) == place.prices[interval_of(of_shard["start"])]
    assert interval_of(of_shard["start"]) == NOW


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_page_of_the_zone_has_the_same_blocks_with_its_own_address(place, language):
    html = place.client.get(f"/zones/harbour?lang={language}").raise_for_status().text
    blocks = [unescape(found) for found in re.findall(r"<pre><code>(.*?)</code></pre>", html, flags=re.DOTALL)]
    evcc, home_assistant, curl = blocks[-3:]
    assert evcc == block("evcc")
    if language == "en":
        assert home_assistant == block("Home Assistant")
    texts = [json.dumps(yaml.safe_load(text)["rest"]) for text in (home_assistant, block("Home Assistant"))]
    assert len({re.sub(r'"name": "[^"]*"', "", text) for text in texts}) == 1
    assert set(curl.splitlines()) < {command for command, _ in commands_of(PAGE)}
