"""Every response of the public API follows the OpenADR 3.1 specification."""

from datetime import date

import pytest

from tests.integration.api.test_cases import ask
from tests.support.api_cases import ADR, Case
from tests.support.api_servers import NOW, TODAY, WHOLE_DAYS
from tests.support.openadr_schema import errors_in
from tests.support.query_cases import FAMILIES

PROGRAMS = ["harbour-PT15M", "harbour-PT1H", "old_20town-PT15M", "old_20town-PT1H"]


def get(clients, path, status=200, **query):
    answer = clients["public"].get(f"{ADR}{path}", params=query)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def test_the_list_of_programs_is_as_specified(clients):
    found = get(clients, "/programs")
    assert [one["id"] for one in found] == PROGRAMS
    assert [errors_in(one, "program") for one in found] == [[]] * 4


def test_the_list_of_events_is_as_specified(clients):
    found = get(clients, "/events")
    assert {one["programID"] for one in found} == set(PROGRAMS)
    assert [errors_in(one, "event") for one in found] == [[]] * len(found)
    assert [one["id"] for one in found] == sorted(one["id"] for one in found)


@pytest.mark.parametrize("what", ["programs", "events"])
def test_a_page_of_nothing_is_an_empty_list(what, clients):
    assert get(clients, f"/{what}", limit=0) == get(clients, f"/{what}", skip=2**31 - 1) == []


def test_active_leaves_out_the_days_that_are_over(clients):
    found = get(clients, "/events", active="true")
    assert {one["id"][-10:] for one in found} == {TODAY}
    assert {one["programID"] for one in found} == set(PROGRAMS)
    assert str(NOW.date()) == TODAY


def test_dates_bound_the_events(clients):
    for first, last in ((WHOLE_DAYS[1], WHOLE_DAYS[2]), (TODAY, TODAY), (WHOLE_DAYS[2], WHOLE_DAYS[1])):
        found = get(clients, "/events", dateStart=first, dateEnd=last)
        days = {date.fromisoformat(one["id"][-10:]) for one in found}
        assert all(date.fromisoformat(first) <= day <= date.fromisoformat(last) for day in days)
        assert bool(days) == (first <= last)


def test_every_event_has_all_intervals_of_its_day(clients):
    for event in get(clients, "/events"):
        assert [one["id"] for one in event["intervals"]] == list(range(len(event["intervals"])))
        types = [one["payloads"][0]["type"] for one in event["intervals"]]
        kinds = [kind for kind in types if kind != "NO_PRICE"]
        assert kinds == sorted(kinds)  # PRICE, then PRICE_FORECAST
        assert ("PRICE_FORECAST" in kinds) == event["id"].endswith(TODAY)


def test_the_notifiers_are_as_specified(clients):
    found = get(clients, "/notifiers")
    assert errors_in(found, "notifiersResponse") == []
    assert found["WEBHOOK"] is False, "there are no subscriptions"
    assert found["MQTT"]["URIS"] == ["mqtt://127.0.0.1:1883"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_topics_are_as_specified(name, clients):
    found = get(clients, f"/notifiers/mqtt/topics/programs/{name}/events")
    assert errors_in(found, "notifierTopicsResponse") == []


def test_the_token_is_where_the_server_says_and_as_specified(clients, apis):
    found = get(clients, "/auth/server")
    assert errors_in(found, "authServerInfo") == []
    assert found["tokenURL"] == f"{apis.url('public')}{ADR}/auth/token"
    form = {"grant_type": "client_credentials", "client_id": "anybody", "client_secret": "anything"}
    assert errors_in(form, "clientCredentialRequest") == []
    token = clients["public"].post(found["tokenURL"], data=form)
    assert token.status_code == 200
    assert errors_in(token.json(), "clientCredentialResponse") == []
    bearer = {"authorization": f"Bearer {token.json()['access_token']}"}
    assert clients["public"].get(f"{ADR}/programs", headers=bearer).status_code == 200


OWN = [
    case for case in FAMILIES["query"] + FAMILIES["wrong methods"] if case.path.startswith(ADR) and case.status >= 400
]


def test_every_error_is_a_problem_as_specified(clients, apis):
    assert len(OWN) > 50
    for case in OWN:
        answer = ask(case, clients, apis)
        if case.method != "HEAD":
            assert errors_in(answer.json(), "problem") == []


def test_the_errors_of_the_private_token_endpoint_are_as_specified(clients, apis):
    cases = [case for cases in FAMILIES.values() for case in cases if case.path == "/auth/token" and case.body]
    seen = set()
    for case in cases:
        answer = ask(case, clients, apis)
        schema = {200: "clientCredentialResponse", 413: "problem"}.get(answer.status_code, "authError")
        assert errors_in(answer.json(), schema) == []
        seen.add(answer.json().get("error"))
    assert seen >= {"invalid_request", "invalid_client", "invalid_scope", "unsupported_grant_type"}


def test_a_zone_with_a_space_has_the_url_of_its_own(clients, apis):
    (one,) = get(clients, "/programs", programName="old_20town-PT15M")
    assert one["programDescriptions"][0]["URL"].startswith(f"{apis.url('public')}/zones/old%20town")
    assert ask(Case("public", "GET", "/zones/old%20town/now", 200), clients, apis).json()["zone"] == "old town"
