"""OpenADR 3.1 for anybody: programs and events can be read without a credential, and nothing can be written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from murmurate.service.public_api import query_params
from murmurate.service.public_api.formats.openadr_event import event_days, event_document
from murmurate.service.public_api.formats.openadr_program import (
    OPENADR_BASE_PATH,
    notifier_topics,
    program_documents,
    programs_of_zone,
    zone_slug,
)
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.response_cache import CachedResponse
from murmurate.service.web.responses import json_response

MAX_PAGE_SIZE = 50
_PAGING_PARAMS = ("skip", "limit", "targets")
_OPENADR_3_0_PARAMS = ("targetType", "targetValues")  # how version 3.0 asked for a name; clients still do
_OBJECT_ID_PATTERN = re.compile("[a-zA-Z0-9_-]{1,128}")  # objectID

JsonObject = dict[str, object]
ItemT = TypeVar("ItemT")


class OpenAdrApi:
    """The read profile."""

    def __init__(self, live_state: LiveState) -> None:
        self._live_state = live_state

    def handlers(self) -> dict[str, Callable[[Request], CachedResponse]]:
        topics = f"{OPENADR_BASE_PATH}/notifiers/mqtt/topics"
        return {
            f"{OPENADR_BASE_PATH}/programs": self.get_programs,
            f"{OPENADR_BASE_PATH}/programs/{{id}}": self.get_program,
            f"{OPENADR_BASE_PATH}/events": self.get_events,
            f"{OPENADR_BASE_PATH}/events/{{id}}": self.get_event,
            f"{OPENADR_BASE_PATH}/notifiers": self.get_notifiers,
            f"{topics}/programs/{{id}}/events": self.get_topics,
            f"{OPENADR_BASE_PATH}/auth/server": self.get_auth_server,
        }

    def get_programs(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, (*_PAGING_PARAMS, "programName", *_OPENADR_3_0_PARAMS))
        name = request.query_params.get("programName")
        if (asked := request.query_params.get("targetType")) is not None:
            if asked != "PROGRAM_NAME":
                raise HTTPException(400, "targetType must be PROGRAM_NAME")
            name = request.query_params.get("targetValues")
        found = [one for one in self._program_documents() if name in {None, one["programName"]}]
        return CachedResponse.from_json(_paginate(request, found))

    def get_program(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        return CachedResponse.from_json(
            _first_or_404(one for one in self._program_documents() if one["id"] == request.path_params["id"])
        )

    def _program_documents(self) -> list[JsonObject]:
        return program_documents(self._live_state.views.values(), self._live_state.settings.base_url)

    def get_events(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, (*_PAGING_PARAMS, "programID", "active", "dateStart", "dateEnd"))
        program = query_params.pattern_param(request, "programID", _OBJECT_ID_PATTERN)
        active, first, last = (
            query_params.bool_param(request, "active"),
            _date_param(request, "dateStart"),
            _date_param(request, "dateEnd"),
        )
        now = datetime.fromtimestamp(self._live_state.clock.now(), UTC)
        found = []
        for view in self._live_state.views.values():
            today = now.astimezone(view.display.timezone).date() if active else date.min
            if program is None or any(one.id == program for one in programs_of_zone(view)):
                found += [one for one in event_days(view) if max(first, today) <= one.day <= last]
        wanted = (one for one in found if program in {None, one.program.id})
        return CachedResponse.from_json(
            [event_document(one) for one in _paginate(request, sorted(wanted, key=lambda one: one.id))]
        )

    def get_event(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        name = request.path_params["id"]
        views = [view for view in self._live_state.views.values() if name.startswith(zone_slug(view.zone))]
        return CachedResponse.from_json(
            event_document(_first_or_404(day for view in views for day in event_days(view) if day.id == name))
        )

    def get_notifiers(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        notifiers: JsonObject = {"WEBHOOK": True}  # the schema wants it so; subscriptions are refused
        broker = self._live_state.settings.mqtt
        if broker is not None and broker.notifications:
            way = {"method": "ANONYMOUS"}
            notifiers["MQTT"] = {"URIS": [broker.uri], "serialization": "JSON", "authentication": way}
        return CachedResponse.from_json(notifiers)

    def get_topics(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        program = _first_or_404(one for one in self._program_documents() if one["id"] == request.path_params["id"])
        broker = self._live_state.settings.mqtt
        if broker is None or not broker.notifications:
            raise HTTPException(404, "there are no MQTT notifications here")
        return CachedResponse.from_json(notifier_topics(str(program["id"])))

    def get_auth_server(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        return CachedResponse.from_json(
            {"tokenURL": f"{self._live_state.settings.base_url}{OPENADR_BASE_PATH}/auth/token"}
        )


async def post_anonymous_token(request: Request) -> Response:
    """A token for clients that cannot do without one. It opens nothing: everything here is open."""
    query_params.check_query_params(request, ())
    token = {"access_token": "anonymous", "token_type": "Bearer", "expires_in": 86_400, "scope": "read_all"}
    return json_response(token, headers={"cache-control": "no-store"})


def openadr_handlers(live_state: LiveState) -> dict[str, Callable[[Request], CachedResponse]]:
    return OpenAdrApi(live_state).handlers()


def _paginate(request: Request, items: list[ItemT]) -> list[ItemT]:
    if not all(0 < len(target) <= 128 for target in request.query_params.getlist("targets")):
        raise HTTPException(400, "targets must be of 1 to 128 characters each")
    skip = query_params.int_param(request, "skip", 2**31 - 1) or 0
    limit = query_params.int_param(request, "limit", MAX_PAGE_SIZE)
    return items[skip : skip + (MAX_PAGE_SIZE if limit is None else limit)]


def _first_or_404(items: Iterable[ItemT]) -> ItemT:
    for one in items:
        return one
    raise HTTPException(404, "there is no such object here")


def _date_param(request: Request, name: str) -> date:
    text = request.query_params.get(name)
    if text is None:
        return date.min if name == "dateStart" else date.max
    try:
        found = datetime.fromisoformat(text.replace(" ", "+")).date()  # a plus that was not escaped
    except ValueError:
        found = None
    if found is None or found.isoformat() != text[:10]:
        raise HTTPException(400, f"{name} must be a day such as 2026-11-14")
    return found
