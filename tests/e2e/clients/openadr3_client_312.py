"""openadr3-client (Python 3.12 or later) reads programs and events, nameless and with a token: `… URL`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

from openadr3_client.oadr310._vtn.interfaces.filters import PaginationFilter
from openadr3_client.oadr310.models.event.event import ExistingEvent
from openadr3_client.ven.http_factory import VirtualEndNodeHttpClientFactory as Factory
from openadr3_client.version import OADRVersion

PAGE = 1
PLAIN = {"allow_insecure_http": True, "version": OADRVersion.OADR_310}


def paged(listing: Callable[..., tuple], **query: str | None) -> list:
    found: list = []
    while page := listing(target=None, pagination=PaginationFilter(skip=len(found), limit=PAGE), **query):
        found += page
    return found


def event_fields(event: ExistingEvent) -> dict[str, object]:
    rows = []
    for interval in event.intervals:
        begin = interval.interval_period.start
        end = begin + interval.interval_period.duration
        values = [[payload.type.value, payload.values[0]] for payload in interval.payloads]
        rows.append({"start": int(begin.timestamp()), "end": int(end.timestamp()), "payloads": values})
    return {"id": event.id, "program": event.program_id, "intervals": rows}


def snapshot(ven) -> dict[str, object]:
    programs = [program.id for program in paged(ven.programs.get_programs)]
    return {
        "programs": programs,
        "events": [event_fields(event) for name in programs for event in paged(ven.events.get_events, program_id=name)],
        "brokers": [str(uri) for uri in ven.notifiers.get_notifiers().mqtt.uris],
        "topics": [ven.notifiers.get_event_topics_for_program(name).topics.all for name in programs],
    }


def main(url: str) -> dict[str, object]:
    os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"  # the test's server has no certificate
    nameless = Factory.create_anonymous_http_ven_client(url, **PLAIN)
    with_token = Factory.create_http_ven_client(url, client_id="anybody", client_secret="anything", **PLAIN)  # noqa: S106
    return {"nameless": snapshot(nameless), "with_token": snapshot(with_token)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])))
