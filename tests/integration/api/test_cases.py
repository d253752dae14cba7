"""Requests to every route of both APIs: the status is the expected one, and every response follows the rules."""

import json
import re
import time
from base64 import b64encode
from datetime import UTC, datetime

import httpx
import pytest

from murmurate.operations.log_source import open_log_source
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import parse_tile
from murmurate.public_log.tile_chain import check_next
from murmurate.public_log.zone_line import parse_zone_line
from murmurate.public_log.zone_table import ZoneTable
from murmurate.verification.verifier import check_log
from tests.support.api_cases import NOW_NAME, PAGES, PRIVATE_PAGES, Case
from tests.support.api_servers import NOW_S, TODAY, WHOLE_DAYS
from tests.support.query_cases import FAMILIES
from tests.support.response_rules import FOR_EVER, check_rules
from tests.support.sample_logs import follow_line
from tests.support.web_server import web_server

_GAP = re.compile(r"\{(plan|upper|token|secret|basic|at)(?::([^}]*))?\}")


def filled(text: str, apis) -> str:
    """The text with the plans, tokens and secrets of the running APIs in place of the placeholders."""

    def one(found):
        what, name = found.groups()
        if what in {"plan", "upper"}:
            return apis.plans["harbour"] if what == "plan" else apis.plans["harbour"].upper()
        if what == "at":
            return datetime.fromtimestamp(int(name), UTC).isoformat()
        if what == "basic":
            return "Basic " + b64encode(f"{name}:{apis.secrets[name]}".encode()).decode()
        return (apis.tokens if what == "token" else apis.secrets)[name]

    return _GAP.sub(one, text)


def ask(case: Case, clients, apis, method=None, **headers: str) -> httpx.Response:
    body = case.body
    if body is not None and len(body) < 10_000:
        body = filled(body.decode("latin-1"), apis).encode("latin-1")
    given = {name: filled(value, apis) for name, value in (case.headers | headers).items()}
    client = clients[case.api]
    url = f"{client.base_url}".rstrip("/") + filled(case.path, apis)
    return client.request(method or case.method, url, headers=given, content=body)


@pytest.mark.parametrize(
    ("family", "case"),
    [pytest.param(family, case, id=f"{family} {case.id}") for family, cases in FAMILIES.items() for case in cases],
)
def test_a_request_gets_the_answer_that_its_family_must_get(family, case, clients, apis):
    answer = ask(case, clients, apis)
    assert answer.status_code == case.status, answer.text[:500]
    check_rules(answer, case.method)
    if family == "happy path" and case.path == "/readings":
        assert set(answer.json()) == {"accepted", "late", "refused", "refusals"}
        assert answer.headers["cache-control"] == "no-store"
    if family == "authorization" and answer.status_code == 401:
        assert "www-authenticate" in answer.headers
    if family == "authorization" and answer.status_code == 422:
        assert {one["reason"] for one in answer.json()["refusals"]} == {"is not a meter of your zones"}
    if family == "bad input" and answer.status_code == 422:
        assert answer.json()["refused"] == len(answer.json()["refusals"]) >= 1


@pytest.mark.parametrize(("api", "path"), [("public", at) for at in PAGES] + [("private", at) for at in PRIVATE_PAGES])
def test_head_is_get_without_a_body(api, path, clients, apis):
    get, head = (ask(Case(api, method, path, 200), clients, apis) for method in ("GET", "HEAD"))
    assert (head.status_code, head.content) == (get.status_code, b"")
    own = {name: value for name, value in get.headers.items() if name not in {"date", "expires", "transfer-encoding"}}
    assert {name: value for name, value in head.headers.items() if name not in {"date", "expires"}} == own
    check_rules(head, "HEAD")


def test_head_of_an_error_is_the_error_without_a_body(clients, apis):
    for path in ("/zones/nobody/now", "/zones?x=1", "/nothing", "/zones/nobody/stream"):
        get, head = (ask(Case("public", method, path, 0), clients, apis) for method in ("GET", "HEAD"))
        assert (head.status_code, head.content) == (get.status_code, b"")
        check_rules(head, "HEAD")


WITH_ETAG = [path for path in PAGES if not path.endswith(("log.jsonl", "healthz", "readyz"))]


@pytest.mark.parametrize("path", WITH_ETAG)
def test_who_has_the_answer_gets_304_without_a_body(path, clients, apis):
    case = Case("public", "GET", path, 200)
    etag = ask(case, clients, apis).headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        for method in ("GET", "HEAD"):
            answer = ask(case, clients, apis, method, **{"if-none-match": known})
            assert (answer.status_code, answer.content) == (304, b""), known
            assert answer.headers["etag"] == etag
            check_rules(answer)
    for other in ('"other"', '""', etag.strip('"')[:31]):
        assert ask(case, clients, apis, **{"if-none-match": other}).status_code == 200


@pytest.mark.parametrize("path", WITH_ETAG)
def test_only_what_never_changes_may_be_kept_for_ever(path, clients, apis):
    answer = ask(Case("public", "GET", path, 200), clients, apis)
    never = path.startswith(("/plans/", "/prices/", "/tiles/", "/documents/")) or "/days/" in path
    assert answer.headers["cache-control"] == (FOR_EVER if never else "public, must-revalidate")
    assert ("expires" in answer.headers) == (not never)


@pytest.mark.parametrize("zone", ["harbour", "old town"])
def test_a_day_is_served_when_it_is_whole_and_never_before(zone, clients):
    days = clients["public"].get(f"/zones/{zone}/days").json()["recent_complete_days"]
    assert set(days) <= set(WHOLE_DAYS)
    for day in WHOLE_DAYS:
        assert clients["public"].get(f"/zones/{zone}/days/{day}.json").status_code == 200
    for day in ("2025-10-23", "2025-10-24", TODAY, "2025-10-29", "2026-10-25"):
        check_rules(answer := clients["public"].get(f"/zones/{zone}/days/{day}.json"))
        assert answer.status_code == 404
    hours = [len(clients["public"].get(f"/zones/{zone}/days/{day}.json").json()["prices"]) / 4 for day in WHOLE_DAYS]
    assert hours == ([24, 25, 24] if zone == "harbour" else [24, 24, 24])


def test_the_clock_of_the_apis_stands_where_it_was_set(clients):
    now = clients["public"].get("/zones/harbour/now").json()
    begin, end = (datetime.fromisoformat(now[name]).timestamp() for name in ("start", "end"))
    assert begin <= NOW_S < end


def test_a_stream_begins_with_the_last_price(clients):
    with clients["public"].stream("GET", "/zones/harbour/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        lines = answer.iter_lines()
        seen = []
        while not seen or not seen[-1].startswith("data:"):
            seen.append(next(lines))
    assert "event: price" in seen


@pytest.mark.parametrize("known", ["0", "-1", "x", "9" * 14, "9" * 5000, "\xb2", ""])
def test_a_stream_takes_any_word_for_the_last_event(known, clients):
    headers = {"last-event-id": known.encode("latin-1")}
    with clients["public"].stream("GET", "/zones/harbour/stream", headers=headers) as answer:
        assert answer.status_code == 200
        assert next(answer.iter_lines()) == "retry: 3000"


def test_head_of_a_stream_ends(apis):
    with httpx.Client(base_url=apis.url("public"), trust_env=False, timeout=120) as one:
        answer = one.head("/zones/harbour/stream")
        assert (answer.status_code, answer.content) == (200, b"")
        assert one.get("/healthz").status_code == 200  # on the same line


def test_any_number_of_heads_leave_the_log_free(clients):
    for _ in range(12):
        assert clients["public"].head("/zones/harbour/log.jsonl").status_code == 200
    assert clients["public"].get("/zones/harbour/log.jsonl").status_code == 200


def test_zones_come_in_pages_and_each_names_the_next(clients):
    first = clients["public"].get("/zones", params={"limit": 1})
    assert [row["zone"] for row in first.json()] == ["harbour"]
    second = clients["public"].get(first.links["next"]["url"])
    assert [row["zone"] for row in second.json()] == ["old town"]
    assert second.links == {}
    assert [row["zone"] for row in clients["public"].get("/zones").json()] == ["harbour", "old town"]


def test_the_tiles_are_the_log_and_every_zone_table_and_plan_is_a_document(clients):
    for row in clients["public"].get("/shards").json():
        head = None
        for seq in range(row["seq"] + 1):
            tile = parse_tile(clients["public"].get(f"/tiles/{row['shard']}/{seq}").content)
            table = ZoneTable.from_json(clients["public"].get(f"/documents/{tile.header.table}").text)
            head = check_next(head, tile, table, verify_signature)
        assert (head.tile.hash, head.interval, head.table.digest) == (row["hash"], row["interval"], row["table"])
        assert row["zones"] == len(head.table)
        for zone in head.table.rows:
            text = clients["public"].get(f"/documents/{zone.plan}").text
            assert ReleaseTerms.from_json(text).plan_digest == zone.plan
            assert clients["public"].get(f"/plans/{zone.plan}.json").text == text


def test_the_lines_of_a_zone_prove_its_prices(clients):
    lines = clients["public"].get("/zones/harbour/log.jsonl").text.splitlines()
    head, prices = None, {}
    for text in lines[1:]:  # the first is the plan
        line = parse_zone_line(text)
        head = follow_line(head, line)
        if len(line.rows):
            prices[line.header.interval + line.header.lead] = int(line.rows["price_ticks"][0])
    day = clients["public"].get(f"/zones/harbour/days/{WHOLE_DAYS[0]}.json").json()
    at = {datetime.fromisoformat(row["start"]).timestamp() // 900: row["price_ticks"] for row in day["prices"]}
    assert {interval: prices[interval] for interval in at} == {n: ticks or 0 for n, ticks in at.items()}


def test_the_folder_of_files_alone_is_enough_to_verify_the_log_and_to_read_a_day(clients, apis):
    folder, shards = apis.settings.static_files, clients["public"].get("/shards").content
    end = time.monotonic() + 120
    while not (folder / "shards").exists() or (folder / "shards").read_bytes() != shards:
        assert time.monotonic() < end
        time.sleep(0.1)
    with web_server(folder) as address:
        for source in (address, f"{address}/shards", str(folder)):
            report = check_log({"files": open_log_source(source)})
            assert (report.is_valid, report.is_complete) == (True, True), report.findings
            assert report.tiles_by_source["files"] == sum(row["seq"] + 1 for row in json.loads(shards))
            assert set(report.zones) == set(apis.plans)
        day = httpx.get(f"{address}/zones/old%20town/days/{WHOLE_DAYS[1]}.json").raise_for_status()
    assert day.json() == clients["public"].get(f"/zones/old%20town/days/{WHOLE_DAYS[1]}.json").json()


def test_what_never_changes_also_lies_in_files_under_the_path_of_its_address(clients, apis):
    folder = apis.settings.static_files
    shards = clients["public"].get("/shards").json()
    paths = [f"tiles/{row['shard']}/{seq}" for row in shards for seq in (0, row["seq"] // 2, row["seq"])]
    paths += [f"documents/{row['table']}" for row in shards]
    paths += [path for plan in apis.plans.values() for path in (f"plans/{plan}.json", f"documents/{plan}")]
    paths += [f"zones/{zone}/days/{day}.json" for zone in ("harbour", "old town") for day in WHOLE_DAYS[1:]]
    paths += [f"prices/{row['shard']}/{NOW_NAME}.json" for row in shards]
    end = time.monotonic() + 120
    while not all((folder / path).exists() for path in paths) and time.monotonic() < end:
        time.sleep(0.1)
    for path in paths:
        assert (folder / path).read_bytes() == clients["public"].get(f"/{path}").content
        assert (folder / path).stat().st_mode & 0o444 == 0o444
    assert list(folder.rglob(".*")) == []


@pytest.mark.parametrize("path", ["/metrics", "/operator"])
def test_the_operator_sees_the_figures(path, clients, apis):
    answer = clients["private"].get(path, auth=("boss", apis.secrets["boss"]))
    assert answer.status_code == 200
    check_rules(answer)


def test_no_answer_of_the_private_api_quotes_a_reading(clients, apis):
    secret = 271_828_182
    for case in FAMILIES["bad input"]:
        if case.path == "/readings" and case.body and b'"energy_wh":120' in case.body and case.status != 415:
            answer = ask(case._replace(body=case.body.replace(b":120", b":%d" % secret)), clients, apis)
            assert str(secret) not in answer.text


def test_nothing_was_out_of_order_and_the_cases_are_counted(apis, capsys):
    counts = {family: len({case.id for case in cases}) for family, cases in FAMILIES.items()}
    with capsys.disabled():
        print("\ncases:", ", ".join(f"{count} {family}" for family, count in counts.items()), end=" ")  # noqa: T201
    assert sum(counts.values()) >= 200
    assert all(counts.values())
    assert [what for what, _ in apis.logged if what == "failing"] == []
