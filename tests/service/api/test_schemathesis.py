"""Both documents say what the doors do: questions drawn from them, and not one answer out of line."""

import copy

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig

from murmurate.curator.terms import Terms
from murmurate.service.board.app import PublicDoor
from murmurate.service.board.openapi import document as public_document
from murmurate.service.doors.openapi import document as private_document
from tests.service.api.cases import ATOM, CSV, GOOD_PARQUET, NDJSON, PARQUET, feed, line
from tests.service.api.world import TODAY, WHOLE_DAYS, ZONES, plan_of

EXAMPLES, SEED = 15, 20251028
BOUNDED = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
ENDLESS = "/zones/{zone}/stream"
KNOWN = {
    "zone": list(ZONES),
    "day": [*WHOLE_DAYS, TODAY],
    "digest": [Terms.of(plan_of(zone)).plan for zone in ZONES],
    "id": ["harbour-PT15M", f"old_20town-PT1H-{WHOLE_DAYS[2]}"],
}
_TOGETHER = {"/zones/{zone}/history.csv", "/zones/{zone}/history.parquet", "/zones/{zone}/vse/v1/tariffs"}

for kind, good in ((NDJSON, line()), ("application/jsonl", line()), (PARQUET, GOOD_PARQUET), (ATOM, feed())):
    schemathesis.openapi.media_type(kind, st.just(good) | st.binary(max_size=200))
schemathesis.openapi.media_type(CSV, st.just(b"meter_id,interval_start,energy_wh\n") | st.binary(max_size=200))


def loaded(document):
    generation = GenerationConfig(max_examples=EXAMPLES, deterministic=True, no_shrink=True)
    projects = ProjectsConfig(default=ProjectConfig(generation=generation))
    return schemathesis.openapi.from_dict(document, config=schemathesis.Config(seed=SEED, projects=projects))


def with_what_is_there(document):
    """The same document, with the zones, days, plans and objects of this world: so 200 is met, not only 404."""
    known = copy.deepcopy(document)
    for operations in known["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path":
                    parameter["schema"] = {"enum": KNOWN[parameter["name"]]}
    return known


PUBLIC = public_document("http://127.0.0.1:1")
anything = loaded(PUBLIC).exclude(path=ENDLESS)
what_is_there = loaded(with_what_is_there(PUBLIC)).exclude(path=ENDLESS)
private = loaded(private_document())


def excluded(case):
    """A start after its end is refused, though each is a time; a body of bytes is never of the wrong type."""
    names = {"positive_data_acceptance"} if case.path in _TOGETHER or case.path == "/readings" else set()
    names |= {"negative_data_rejection"} if case.path == "/readings" else set()
    return CHECKS.get_by_names(sorted(names))


@pytest.fixture(scope="module")
def session():
    with requests.Session() as one:
        one.trust_env = False
        yield one


@anything.parametrize()
@seed(SEED)
@BOUNDED
def test_the_public_door_does_what_its_document_says(case, world, session):
    case.call_and_validate(world.url("public"), session, excluded_checks=excluded(case))


@what_is_there.parametrize()
@seed(SEED)
@BOUNDED
def test_the_public_door_shows_what_is_there_as_its_document_says(case, world, session):
    case.call_and_validate(world.url("public"), session, excluded_checks=excluded(case))


@private.parametrize()
@seed(SEED)
@BOUNDED
def test_the_private_door_does_what_its_document_says(case, world, session):
    case.call_and_validate(world.url("private"), session, excluded_checks=excluded(case))


@private.include(path="/readings").parametrize()
@seed(SEED)
@BOUNDED
def test_the_private_door_takes_from_its_clients_what_its_document_says(case, world, session):
    headers = {"authorization": f"Bearer {world.tokens['harbour']}"}
    case.call_and_validate(world.url("private"), session, headers, excluded_checks=excluded(case))


def served(routes):
    return {(route.path, method.lower()) for route in routes for method in route.methods - {"HEAD"}}


def named(document):
    return {(path, method) for path, methods in document["paths"].items() for method in methods}


def test_the_public_document_names_every_route_and_no_other(world):
    assert named(PUBLIC) == served(PublicDoor(world.board).routes())


def test_the_private_document_names_every_route_and_no_other(world):
    assert named(private_document()) == served(world.private_routes)


def test_the_doors_serve_their_documents(doors, world):
    assert doors["public"].get("/openapi.json").json() == public_document(world.url("public"))
    assert doors["private"].get("/openapi.json").json() == private_document()
