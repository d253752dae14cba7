"""Both OpenAPI documents describe what the APIs do: every response to a generated request follows them."""

import copy

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.service.public_api.client_formats import CLIENT_FORMATS
from murmurate.service.web.responses import openapi_document
from tests.support.api_cases import ATOM, CSV, GOOD_PARQUET, NDJSON, PARQUET, feed, line
from tests.support.api_servers import TODAY, WHOLE_DAYS, ZONES, plan_of

EXAMPLES, SEED = 15, 20251028
BOUNDED = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
ENDLESS = "/zones/{zone}/stream"
KNOWN = {
    "zone": list(ZONES),
    "day": [*WHOLE_DAYS, TODAY],
    "digest": [ReleaseTerms.from_json(plan_of(zone)).plan_digest for zone in ZONES],
    "shard": ["00000000-0000", "00000000-0001"],
    "seq": [0, 9],
    "id": ["harbour-PT15M", f"old_20town-PT1H-{WHOLE_DAYS[2]}"],
}
_TOGETHER = {f"/zones/{{zone}}/{path}" for path in ("history.csv", "history.parquet", "prices", "vse/v1/tariffs")}
_TOGETHER |= {f"/zones/{{zone}}{path}" for path in CLIENT_FORMATS}

for kind, good in ((NDJSON, line()), ("application/jsonl", line()), (PARQUET, GOOD_PARQUET), (ATOM, feed())):
    schemathesis.openapi.media_type(kind, st.just(good) | st.binary(max_size=200))
schemathesis.openapi.media_type(CSV, st.just(b"meter_id,interval_start,energy_wh\n") | st.binary(max_size=200))


def loaded(document):
    generation = GenerationConfig(max_examples=EXAMPLES, deterministic=True, no_shrink=True)
    projects = ProjectsConfig(default=ProjectConfig(generation=generation))
    return schemathesis.openapi.from_dict(document, config=schemathesis.Config(seed=SEED, projects=projects))


def with_what_is_there(document):
    """The same document, with the zones, days, plans and objects that exist, so that 200 occurs and not only 404."""
    known = copy.deepcopy(document)
    in_path = [one for one in known["components"]["parameters"].values() if one["in"] == "path"]
    assert {parameter["name"] for parameter in in_path} == KNOWN.keys()
    for parameter in in_path:
        parameter["schema"] = {"enum": KNOWN[parameter["name"]]}
    return known


PUBLIC = openapi_document("murmurate.service.public_api")
PRIVATE = openapi_document("murmurate.service.ingest")
anything = loaded(PUBLIC).exclude(path=ENDLESS)
what_is_there = loaded(with_what_is_there(PUBLIC)).exclude(path=ENDLESS)
private = loaded(PRIVATE)


def excluded(case):
    """A start after its end is refused, though each is a time; a body of bytes is never of the wrong type."""
    names = {"positive_data_acceptance"} if case.path in {*_TOGETHER, "/readings", "/public-inputs"} else set()
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
def test_the_public_api_does_what_its_document_says(case, apis, session):
    case.call_and_validate(apis.url("public"), session, excluded_checks=excluded(case))


@what_is_there.parametrize()
@seed(SEED)
@BOUNDED
def test_the_public_api_shows_what_is_there_as_its_document_says(case, apis, session):
    case.call_and_validate(apis.url("public"), session, excluded_checks=excluded(case))


@private.parametrize()
@seed(SEED)
@BOUNDED
def test_the_private_api_does_what_its_document_says(case, apis, session):
    case.call_and_validate(apis.url("private"), session, excluded_checks=excluded(case))


@private.include(path="/readings").parametrize()
@seed(SEED)
@BOUNDED
def test_the_private_api_takes_from_its_clients_what_its_document_says(case, apis, session):
    headers = {"authorization": f"Bearer {apis.tokens['harbour']}"}
    case.call_and_validate(apis.url("private"), session, headers, excluded_checks=excluded(case))


def served(routes):
    return {(route.path, method.lower()) for route in routes for method in route.methods - {"HEAD"}}


def named(document):
    return {(path, method) for path, methods in document["paths"].items() for method in methods}


def test_each_document_names_every_route_and_no_other(apis):
    assert named(PUBLIC) == served(apis.public_routes)
    assert named(PRIVATE) == served(apis.private_routes)


def test_the_apis_serve_their_documents(clients, apis):
    servers = {"servers": [{"url": apis.url("public")}]}
    assert clients["public"].get("/openapi.json").json() == PUBLIC | servers
    assert clients["private"].get("/openapi.json").json() == PRIVATE
