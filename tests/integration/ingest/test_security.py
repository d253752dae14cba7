"""Readings that must not count: of another's meter, repeated, wrongly signed, with an expired token, out of scope.

Each family is at least a hundred cases drawn from one seed; every single one is refused, and nothing of it lands.
"""

from __future__ import annotations

import random
from contextlib import closing

import pytest
from tests.support.databases import database
from tests.support.ingest_server import (
    HARBOUR,
    KEYS,
    OPEN_S,
    QUAY,
    SIGNING,
    STEP_S,
    lines,
    parquet,
    reading,
    run_ingest_server,
    signed,
)

from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.ingest.meter_registry import signed_bytes
from murmurate.service.storage.migrate import migrate_database

CASES = 120
SEED = 20261115


@pytest.fixture
def server(tmp_path):
    with database("state") as dsn:
        migrate_database(dsn, "state")
        with run_ingest_server(tmp_path, dsn) as server:
            yield server


@pytest.fixture
def rng():
    return random.Random(SEED)  # noqa: S311  cases, not secrets


def batch(meters, rng, form):
    """A body in one of the formats, and its content type."""
    if form == "parquet":
        return parquet(meters), "application/vnd.apache.parquet"
    if form == "csv":
        rows = [f"m-{meter},{OPEN_S},{rng.randrange(600)}" for meter in meters]
        return "\n".join(["meter_id,interval_start,energy_wh", *rows]).encode(), "text/csv"
    return lines([reading(meter, energy_wh=rng.randrange(600)) for meter in meters]), "application/x-ndjson"


def test_readings_for_another_operators_meter_are_refused(server, rng, figure):
    token, refused, mine = server.bearer("north"), 0, set()
    for case in range(CASES):
        own = rng.sample(HARBOUR, rng.randrange(3))
        foreign = rng.sample(QUAY, rng.randint(1, 4))
        meters = [*own, *foreign]
        rng.shuffle(meters)
        body, kind = batch(meters, rng, ("parquet", "csv", "json")[case % 3])
        answer = server.post(token, body, kind)
        assert answer.status_code == 422
        assert (answer.json()["accepted"], answer.json()["refused"]) == (len(own), len(foreign))
        refused += answer.json()["refused"]
        mine |= set(own)
    assert refused >= 100
    demand = server.counted()
    assert dict(zip(demand.zones, demand.reported.tolist(), strict=True)) == {"harbour": len(mine), "quay": 0}
    figure(f"{refused} readings for another's meter, all refused")


def test_a_signed_reading_is_taken_once_however_it_comes_back(server, rng, figure):
    token, refused = server.bearer("south"), 0
    known = [signed(meter, OPEN_S, rng.randrange(600)) for meter in SIGNING]
    assert server.post(token, lines(known)).json()["accepted"] == len(known)
    landed = server.landed()
    while refused < CASES:
        some = [dict(row) for row in rng.sample(known, rng.randint(1, 3))]
        for row in some:
            if rng.random() < 0.3:
                row["signature"] = str(row["signature"]).upper()
            if rng.random() < 0.3:
                row["interval_start"] = "2026-11-14T14:30:00Z"
            if rng.random() < 0.3:  # another value
                row.update(signed(int(str(row["meter"]).removeprefix("m-")), OPEN_S, rng.randrange(600)))
        answer = server.post(token, lines(some))
        assert (answer.status_code, answer.json()["accepted"]) == (422, 0)
        refused += answer.json()["refused"]
    assert server.landed() == landed
    figure(f"{refused} repeated readings, all refused")


def test_twice_in_one_batch_counts_once(server):
    row = signed(SIGNING[0])
    answer = server.post(server.bearer("south"), lines([row, row, row]))
    assert (answer.json()["accepted"], answer.json()["refused"]) == (1, 2)


def test_a_signed_reading_that_came_too_late_is_never_said_to_be_here(server):
    """Its interval was closed before its deadline, by a worker whose clock was ahead."""
    server.counted(OPEN_S)
    body = lines([signed(SIGNING[0])])
    answers = [server.post(server.bearer("south"), body).json() for _ in range(2)]
    assert [(answer["accepted"], answer["late"], answer["refused"]) for answer in answers] == [(0, 1, 0)] * 2


@pytest.mark.parametrize("energy_wh", [-3, 0, 2**53, 2**63 - 1, -(2**63)])
def test_a_signed_reading_of_any_value_verifies_before_it_is_clipped(server, energy_wh):
    answer = server.post(server.bearer("south"), lines([signed(SIGNING[0], OPEN_S, energy_wh)]))
    assert (answer.status_code, answer.json()["accepted"]) == (200, 1)
    demand = server.counted()
    row = demand.zones.index("quay")
    assert demand.reported[row] == 1
    assert demand.energy_wh[row] == (len(QUAY) - 1) * 200 + min(max(energy_wh, 0), 1000)


@pytest.mark.parametrize(("sent", "signs"), [(12.9, 12), (-0.5, -1), (1e300, 2**63 - 1), (-1e300, -(2**63))])
def test_a_meter_signs_whole_wh_rounded_down_within_64_bits(server, sent, signs):
    answer = server.post(server.bearer("south"), lines([signed(SIGNING[0], OPEN_S, signs) | {"energy_wh": sent}]))
    assert (answer.status_code, answer.json()["accepted"]) == (200, 1)


def forgeries(rng):
    """Ways to sign wrongly."""
    meter = rng.choice(SIGNING)
    other = rng.choice([one for one in SIGNING if one != meter])
    energy = rng.randrange(600)
    row = signed(meter, OPEN_S, energy)
    signature = str(row["signature"])
    at = rng.randrange(len(signature))
    flipped = f"{signature[:at]}{int(signature[at], 16) ^ rng.randint(1, 15):x}{signature[at + 1 :]}"
    name = f"m-{meter}"
    return rng.choice(
        (
            row | {"signature": flipped},
            row | {"energy_wh": energy + rng.randint(1, 50)},
            row | {"signature": KEYS[other].sign(signed_bytes(name, OPEN_S, energy))},
            row | {"signature": KEYS[meter].sign(signed_bytes(f"m-{other}", OPEN_S, energy))},
            row | {"signature": KEYS[meter].sign(signed_bytes(name, OPEN_S - STEP_S, energy))},
            row | {"signature": KEYS[meter].sign(f"{meter}{OPEN_S}{energy}".encode())},
            row | {"signature": signature[:-2]},
            row | {"signature": signature + "00"},
            row | {"signature": "00" * 64},
            {key: value for key, value in row.items() if key != "signature"},
        )
    )


def test_wrongly_signed_readings_are_refused(server, rng, figure):
    token, refused = server.bearer("south"), 0
    for _ in range(CASES):
        answer = server.post(token, lines([forgeries(rng)]))
        assert (answer.status_code, answer.json()["accepted"]) == (422, 0), answer.text
        refused += answer.json()["refused"]
    assert refused == CASES
    assert server.landed() == 0
    figure(f"{refused} wrongly signed readings, all refused")


def test_meters_that_sign_cannot_be_spoken_for_by_parquet(server):
    answer = server.post(server.bearer("south"), parquet(list(SIGNING)), "application/vnd.apache.parquet")
    assert (answer.status_code, answer.json()["refused"]) == (422, len(SIGNING))


def test_expired_revoked_and_invented_tokens_are_refused(server, rng, figure):
    refused, body = 0, lines([reading(1)])
    for case in range(CASES):
        token = server.bearer("north")
        if case % 4 == 0:
            server.query("UPDATE access.token SET expires = now() - make_interval(secs => %s)", rng.uniform(0, 1e6))
        elif case % 4 == 1:
            server.query("DELETE FROM access.client WHERE id = 'north'")
        elif case % 4 == 2:
            token = token[:-1] + format(int(token[-1], 16) ^ rng.randint(1, 15), "x")
        else:
            token = rng.choice(("x", "anonymous", token.upper() + "0", token[:32], "' OR 1=1", f"{token}, {token}"))
        answer = server.post(token, body)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        refused += 1
        if case % 4 == 1:
            with closing(AuthStore(server.dsn)) as access:
                server.secrets["north"] = access.add_client(ApiClient(id="north", zones=frozenset({"harbour"})))
    assert refused == CASES
    assert server.landed() == 0
    figure(f"{refused} requests with an expired, revoked or invented token, all refused")


def test_no_scope_beyond_the_clients_own_is_granted_or_honoured(server, rng, figure):
    refused = 0
    wide = ["readings:quay", "readings:harbour readings:quay", "readings:*"]
    wide += ["read_all", "readings:", "readings:HARBOUR"]
    for case in range(CASES):
        if case % 2:
            answer = server.token("north", rng.choice(wide))
            assert (answer.status_code, answer.json()["error"]) == (400, "invalid_scope")
        else:
            narrow = server.token("both", "readings:harbour").json()
            assert narrow["scope"] == "readings:harbour"
            answer = server.post(narrow["access_token"], lines([reading(rng.choice(QUAY))]))
            assert (answer.status_code, answer.json()["accepted"]) == (422, 0)
        refused += 1
    assert refused == CASES
    assert server.landed() == 0
    figure(f"{refused} requests beyond their scope, all refused")


def test_a_zone_that_a_client_has_lost_is_lost_for_its_tokens_too(server):
    token = server.bearer("both")
    server.query("UPDATE access.client SET zones = '{harbour}' WHERE id = 'both'")
    answer = server.post(token, lines([reading(QUAY[0]), reading(HARBOUR[0])]))
    assert (answer.json()["accepted"], answer.json()["refused"]) == (1, 1)
