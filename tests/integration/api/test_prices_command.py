"""`murmurate prices` at the address of a running service: as the server says, or from its verified log."""

import json
from datetime import datetime

import pytest

from murmurate.commands.prices import show_prices
from murmurate.errors import MurmurateError
from tests.support.api_servers import WHOLE_DAYS


def document(capsys, source, **options):
    show_prices(source, as_json=True, **options)
    return json.loads(capsys.readouterr().out)


def test_what_the_server_says_is_what_its_log_says(apis, capsys):
    address = f"{apis.url('public')}/zones/harbour"
    day = datetime.fromisoformat(WHOLE_DAYS[1])  # of 25 hours
    said = document(capsys, address, day=day)
    assert not said["verified"]
    assert said["timezone"] == "Europe/Zurich"
    assert len(said["prices"]) == 100
    proven = document(capsys, address, day=day, verify=True, time_zone="Europe/Zurich")
    assert proven["verified"]
    assert said["prices"] == proven["prices"]
    other = document(capsys, apis.url("public"), zone="harbour", last=3)
    assert len(other["prices"]) == 3
    show_prices(address, day=day)
    printed = capsys.readouterr().out
    assert printed.count("\n02:00 CE") == 2
    assert "Not verified: this is what the server says." in printed


def test_a_zone_that_is_not_there_is_named(apis):
    with pytest.raises(MurmurateError, match="was not found; is there a zone of this name"):
        show_prices(f"{apis.url('public')}/zones/nowhere")
    with pytest.raises(MurmurateError, match="must be the address of a zone"):
        show_prices(apis.url("public"))
