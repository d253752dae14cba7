"""Operators whom a proxy has authenticated, over real connections: the header counts from its address alone."""

import re
import unicodedata
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from tests.support.api_servers import listening
from tests.support.ports import free_port
from tests.support.recorded_log import recorded_log

from murmurate.errors import MurmurateError
from murmurate.service import logging_setup
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.ingest.http_api import private_app
from murmurate.service.operator_api.public_inputs import PublicInputsApi
from murmurate.service.operator_api.routes import OperatorApi
from murmurate.service.settings import ClientLimits, OperatorLogin, ServiceSettings, load_settings
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.session import SessionPool
from murmurate.service.web.server import ConnectionLimits

PROXY, OTHER, LOAD_BALANCER = "127.0.0.2", "127.0.0.1", "127.0.0.3"
BEHIND_IT = "192.0.2.9"  # an address of the login's proxy that the load balancer may be made to name
ANNA, JOERG = "anna@grid.example", "jörg@grid.example"
HEADER = "X-Forwarded-Email"
LOGIN = OperatorLogin(header=HEADER, proxies=(PROXY, BEHIND_IT), users=(ANNA, JOERG))
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "operator-login.md"
SERIES = b"start,value\n2026-11-18T12:00:00Z,-4.25\n"
pytestmark = pytest.mark.slow


@contextmanager
def operator_server(state_dsn, log_dsn, login):
    state, port = SessionPool(state_dsn), free_port()
    access = AuthStore(state)
    secret = access.add_client(ApiClient(id="boss", zones=frozenset(), is_operator=True))
    databases = Databases.from_dsns(state=state_dsn, log=log_dsn)
    settings = ServiceSettings(operator_login=login)
    operator = OperatorApi(databases=databases, settings=settings, state=state, counts=Counter())
    inputs = PublicInputsApi(state=state, access=operator.operators, interval_s=3600)
    limits = ConnectionLimits(ClientLimits(forwarded_by=(LOAD_BALANCER,)))
    logged = []
    app = private_app([*inputs.routes(), *operator.routes()])
    with recorded_log(logged), listening(app, port, limits):

        def send(*names, source=PROXY, path="/operator", method="GET", header=HEADER, auth=None, **more):
            """The answer to a request from an address, with this header once for each name."""
            headers = [(header.encode(), name if isinstance(name, bytes) else name.encode()) for name in names]
            headers += [(name.encode(), text.encode()) for name, text in more.pop("headers", {}).items()]
            transport = httpx.HTTPTransport(local_address=source)
            with httpx.Client(transport=transport, base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
                return client.request(method, path, headers=headers, auth=auth, **more)

        yield SimpleNamespace(send=send, secret=secret, logged=logged)
    for closing in (operator, state):
        closing.close()


@pytest.fixture
def server(state_dsn, log_dsn, monkeypatch):
    monkeypatch.setattr(logging_setup, "RATE_PERIOD_S", 0.0)  # tests may follow each other within a second
    with operator_server(state_dsn, log_dsn, LOGIN) as running:
        yield running


def users(server, event):
    return [facts["user"] for shown, facts in server.logged if shown == event]


def test_a_user_whom_the_proxy_names_sees_page_and_metrics_and_the_log_names_the_user(server):
    for user in (ANNA, JOERG):
        answer = server.send(user)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert server.send(ANNA, path="/metrics").status_code == 200
    assert server.send(ANNA, auth=("nobody", "a password of the proxy")).status_code == 200
    assert users(server, "operator page shown") == [ANNA, JOERG, ANNA]


def test_from_any_other_address_the_header_is_as_if_it_were_not_there(server):
    for path in ("/operator", "/metrics"):
        answer = server.send(ANNA, source=OTHER, path=path)
        assert (answer.status_code, answer.headers["www-authenticate"][:5]) == (401, "Basic")
        assert server.send(ANNA, "eve", source=OTHER, path=path, auth=("boss", server.secret)).status_code == 200
    assert users(server, "operator page shown") == ["boss"]


def test_a_load_balancer_cannot_be_made_to_speak_for_the_proxy(server):
    """It names its client in X-Forwarded-For, whose text may be the client's."""
    answer = server.send(ANNA, source=LOAD_BALANCER, headers={"X-Forwarded-For": BEHIND_IT})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "names",
    [
        ("eve@grid.example",),
        (ANNA, "eve@grid.example"),
        (ANNA, ANNA),
        (f"{ANNA},eve@grid.example",),
        (f"{ANNA}, {ANNA}",),
        ("",),
        ("", ANNA),
        (ANNA.upper(),),
        (unicodedata.normalize("NFD", JOERG),),
        (JOERG.encode("latin-1"),),
        (b"anna\xc0\xae@grid.example",),
        ("\u0430nna@grid.example",),  # a Cyrillic letter
    ],
)
def test_a_header_that_names_no_operator_exactly_once_is_refused(server, names):
    answer = server.send(*names, auth=("boss", server.secret))
    assert (answer.status_code, "www-authenticate" in answer.headers) == (403, False)
    assert "operator refused" in [event for event, _ in server.logged]
    assert users(server, "operator page shown") == []


def test_without_the_header_the_proxy_is_a_client_like_any_other(server):
    assert server.send().status_code == 401
    assert server.send(ANNA, header="X_Forwarded_Email").status_code == 401
    assert server.send(auth=("boss", server.secret)).status_code == 200
    assert users(server, "operator page shown") == ["boss"]


def test_no_other_site_has_the_browser_of_an_operator_change_anything(server):
    def post(**headers):
        path = "/public-inputs?series=Mannheim"
        return server.send(ANNA, path=path, method="POST", content=SERIES, headers=headers).status_code

    assert [post(**{"Sec-Fetch-Site": site}) for site in ("cross-site", "same-site", "")] == [403, 403, 403]
    assert post(Origin="https://elsewhere.example") == 403
    assert users(server, "public inputs stored") == []
    assert [post(), post(**{"Sec-Fetch-Site": "same-origin", "Origin": "https://here.example"})] == [200, 200]
    assert users(server, "public inputs stored") == [ANNA, ANNA]


def test_it_is_off_unless_the_settings_name_a_proxy(state_dsn, log_dsn):
    with operator_server(state_dsn, log_dsn, None) as server:
        assert server.send(ANNA).status_code == 401


def test_the_settings_of_the_page_are_right_and_half_a_login_is_refused(tmp_path):
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    settings = tmp_path / "service.toml"
    settings.write_text(shown)
    login = load_settings(settings).operator_login
    assert (login.header, login.proxies, login.users[0]) == (HEADER, [PROXY], ANNA)
    assert ServiceSettings().operator_login is None
    wrong = {
        "proxies.*missing": {"proxies": ()},
        "proxies.*networks": {"proxies": ("proxy.example",)},
        "users": {"users": ()},
        "users.*,": {"users": (f"{ANNA},{JOERG}",)},
        "users.* ": {"users": (f"{ANNA} ",)},
        "header": {"header": "X-Forwarded-Email:"},
    }
    for message, changed in wrong.items():
        with pytest.raises(MurmurateError, match=message):
            OperatorLogin(**{"header": HEADER, "proxies": (PROXY,), "users": (ANNA,)} | changed)
