"""A zone that was closed: what was decided is still paid, nothing is promised after it, and its history stays."""

import json
from datetime import UTC, datetime

import pytest
from tests.support.api_servers import STEP_S, plan_of, public_process
from tests.support.openadr_schema import errors_in
from tests.support.postgres_stores import ShardWriter
from tests.support.waiting import wait_until

from murmurate.commands.prices import show_prices
from murmurate.errors import MurmurateError
from murmurate.service.log_reader.follower import Follower
from murmurate.service.log_reader.zone_view import format_rfc3339
from murmurate.service.operator_api.attention import find_attention
from murmurate.service.operator_api.routes import status_metrics
from murmurate.service.operator_api.status import service_status
from murmurate.service.settings import ServiceSettings
from murmurate.service.web.text import format_metrics

pytestmark = pytest.mark.slow
FIRST, PRICED, LEAD = 1_900_000, 5, 2
LAST_PAID = FIRST + PRICED - 1 + LEAD


@pytest.fixture
def writer(log_dsn):
    plans = {zone: plan_of(zone) for zone in ("harbour", "old town")}
    made = ShardWriter(log_dsn, plans, first=FIRST, lead=LEAD)
    made.write(PRICED + 1, 400_000)
    yield made
    made.close()


def test_a_zone_closed_under_a_running_process_keeps_its_prices_until_they_end(log_dsn, writer):
    with public_process(log_dsn, LAST_PAID * STEP_S) as (client, state):
        before = client.get("/zones/harbour/now").json()
        writer.write(closing=["harbour"])
        writer.write(2, 500_000)
        assert wait_until(lambda: state.views["harbour"].closed is not None)
        assert wait_until(lambda: state.views["old town"].last_decided > LAST_PAID)
        now = client.get("/zones/harbour/now")
        assert now.status_code == 200
        assert now.json() == before | {"next_price": None}
        assert client.get("/zones/old%20town/now").json()["next_price"] is not None
        assert len(client.get("/zones/harbour/evcc?forecast=true").json()) == 1
        assert "closed for ever" in client.get("/zones/harbour?lang=en").text


def test_a_zone_without_a_price_yet_says_when_its_first_one_is_paid(log_dsn):
    made = ShardWriter(log_dsn, {"harbour": plan_of("harbour")}, first=FIRST, lead=LEAD)
    made.write()
    made.close()
    with public_process(log_dsn, FIRST * STEP_S) as (client, _):
        first = datetime.fromtimestamp((FIRST + LEAD) * STEP_S, UTC)
        assert datetime.fromisoformat(client.get("/zones/harbour/days").json()["first_price"]) == first
        with pytest.raises(MurmurateError, match=f"its first is paid from {first:%a %d %b %Y, %H:%M} "):
            show_prices(f"{client.base_url}/zones/harbour")


def test_a_closed_zone_says_since_when_and_its_history_stays(log_dsn, writer, tmp_path):
    writer.write(closing=["harbour"])
    writer.write(3, 500_000)
    paid = writer.prices("harbour")
    assert max(paid) == LAST_PAID
    end = format_rfc3339((LAST_PAID + 1) * STEP_S)
    with public_process(log_dsn, (LAST_PAID + 1) * STEP_S, static_files=tmp_path / "static") as (client, state):
        gone = client.get("/zones/harbour/now")
        assert gone.status_code == 410
        view = state.views["harbour"]
        last = float(paid[LAST_PAID] * view.tick)
        assert gone.json()["detail"].startswith(
            f"the zone is closed: its last price was {last} CHF/kWh and ended at {end}"
        )
        entries = {entry["zone"]: entry for entry in client.get("/zones").json()}
        assert (entries["harbour"]["closed"], entries["harbour"]["decided_until"]) == (True, end)
        assert "closed" not in entries["old town"]
        lines = client.get("/zones/harbour/history.csv").text.splitlines()[1:]
        assert [int(line.split(",")[3]) for line in lines] == [paid[interval] for interval in sorted(paid)]
        assert client.get("/zones/harbour/history.parquet").status_code == 200
        assert client.get("/zones/harbour/evcc?forecast=true").json() == []
        rows = client.get("/zones/harbour/prices").json()["prices"]
        assert [(row["status"], round(row["value"] / view.tick)) for row in rows] == [
            ("final", paid[n]) for n in sorted(paid)
        ]
        assert client.get("/zones/harbour/vse/v1/tariffs").status_code == 404
        assert client.get("/readyz").status_code == client.get("/readyz?zone=harbour").status_code == 200
        log = client.get("/zones/harbour/log.jsonl").text.splitlines()
        assert json.loads(log[-1])["tile"]["extensions"]["closed"].keys() == {"harbour"}
        assert len(log) == PRICED + 3  # its plan, the first tile, the releases, the end
        assert "closed for ever" in client.get("/zones/harbour?lang=en").text
        assert "für immer geschlossen" in client.get("/zones/harbour?lang=de").text
        assert client.get("/zones/harbour/plan").status_code == 200
        assert ">closed</span>" in client.get("/?lang=en").text
        (shard,) = client.get("/shards").json()
        assert (shard["zones"], state.count_stale_shards()) == (1, 0)
        assert wait_until((tmp_path / "static" / "shards").exists)


def test_a_closed_zone_ends_its_openadr_programs(log_dsn, writer):
    writer.write(closing=["harbour"])
    base = "/openadr3/3.1.0"
    with public_process(log_dsn, LAST_PAID * STEP_S) as (client, _):
        programs = {each["id"]: each for each in client.get(f"{base}/programs").json()}
        period = programs["harbour-PT15M"]["intervalPeriod"]
        assert period == {"start": format_rfc3339((FIRST + LEAD) * STEP_S), "duration": "PT1H15M"}
        assert "intervalPeriod" not in programs["old_20town-PT15M"]
        (event,) = client.get(f"{base}/events?programID=harbour-PT15M").json()
        kinds = [interval["payloads"][0]["type"] for interval in event["intervals"]]
        assert kinds.count("PRICE") == PRICED
        assert set(kinds) == {"PRICE", "NO_PRICE"}
        (event,) = client.get(f"{base}/events?programID=old_20town-PT15M").json()
        assert "PRICE_FORECAST" in {interval["payloads"][0]["type"] for interval in event["intervals"]}
        assert errors_in(programs["harbour-PT15M"], "program") == []


def test_a_service_of_closed_zones_only_is_ready_and_needs_nobody(log_dsn, writer):
    writer.write(closing=["harbour", "old town"])
    with public_process(log_dsn, (LAST_PAID + 2000) * STEP_S) as (client, state):
        assert client.get("/readyz").status_code == 200
        assert state.count_stale_shards() == 0
        assert client.get("/zones/harbour/now").status_code == 410
        assert len(client.get("/zones/harbour/history.csv").text.splitlines()) == PRICED + 1
        assert client.get("/?lang=en").status_code == 200
    follower = Follower(log_dsn, recent_s=86_400)
    list(follower.refresh())
    settings = ServiceSettings()
    status = service_status(
        follower.views(),
        follower.broken,
        display_of=settings.display_of,
        now_s=(LAST_PAID + 2000) * STEP_S,
        grace_s=60,
        reading_counts={},
        heartbeat=None,
        clients=[],
    )
    follower.close()
    assert (status.zone_count, status.closed_count, list(status.zones)) == (0, 2, [])
    assert find_attention(status, settings) == []
    shown = format_metrics(status_metrics(status))
    assert "murmurate_zones_closed 2.0" in shown
    assert "murmurate_zone_intervals_behind{" not in shown
