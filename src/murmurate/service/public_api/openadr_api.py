"""OpenADR 3.1 for anybody: programs and events can be read without a credential, and nothing can be written."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime
from typing import NamedTuple, TypeVar

import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from murmurate.service.public_api import query_params
from murmurate.service.public_api.formats.openadr_event import EventDay, event_days, event_document
from murmurate.service.public_api.formats.openadr_program import (
    OPENADR_BASE_PATH,
    Program,
    notifier_topics,
    program_document,
)
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.response_cache import CachedResponse
from murmurate.service.web.responses import json_response

MAX_PAGE_SIZE = 50
_PAGING_PARAMS = ("skip", "limit", "targets")
_OPENADR_3_0_PARAMS = ("targetType", "targetValues")  # how version 3.0 asked for a name; clients still do
_OBJECT_ID_PATTERN = re.compile("[a-zA-Z0-9_-]{1,128}")  # objectID

RequestHandler = Callable[[Request], CachedResponse | Awaitable[CachedResponse]]
JsonObject = dict[str, object]
ItemT = TypeVar("ItemT")


class DayFilter(NamedTuple):
    """Which events a client asks for."""

    active: bool  # without days that are over
    first: date
    last: date

    def includes(self, event: EventDay, now: datetime) -> bool:
        today = now.astimezone(event.program.view.display.timezone).date() if self.active else date.min
        return max(self.first, today) <= event.day <= self.last


class OpenAdrApi:
    """The read profile."""

    def __init__(self, live_state: LiveState) -> None:
        self._live_state = live_state

    def handlers(self) -> dict[str, RequestHandler]:
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

    async def get_programs(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, (*_PAGING_PARAMS, "programName", *_OPENADR_3_0_PARAMS))
        name = request.query_params.get("programName")
        if (asked := request.query_params.get("targetType")) is not None:
            if asked != "PROGRAM_NAME":
                raise HTTPException(400, "targetType must be PROGRAM_NAME")
            name = request.query_params.get("targetValues")
        skip, limit = _page_params(request)
        index, threads = self._live_state.program_index, self._live_state.bulk_threads
        async with threads.turn():
            ids = index.ids if name is None else [name]
            found = [program for each in ids[skip : skip + limit] if (program := index.find(each)) is not None]
            return await threads.run_in_turn(_make_program_list, found, self._live_state.settings.base_url)

    def _program_document(self, program: Program) -> JsonObject:
        return program_document(program, self._live_state.settings.base_url)

    def get_program(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        return CachedResponse.from_json(self._program_document(self._require_program(request.path_params["id"])))

    def _require_program(self, program_id: str) -> Program:
        return _require(self._live_state.program_index.find(program_id))

    async def get_events(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, (*_PAGING_PARAMS, "programID", "active", "dateStart", "dateEnd"))
        program = query_params.pattern_param(request, "programID", _OBJECT_ID_PATTERN)
        active, first, last = (
            query_params.bool_param(request, "active"),
            _date_param(request, "dateStart"),
            _date_param(request, "dateEnd"),
        )
        skip, limit = _page_params(request)
        wanted, threads = DayFilter(active, first, last), self._live_state.bulk_threads
        async with threads.turn():
            if program is None:
                days = self._find_events(wanted, skip, limit)
            else:
                days = self._event_days(program, wanted)[skip : skip + limit]
            await self._live_state.load_terms(day.program.view.plan_digest for day in days)
            return await threads.run_in_turn(_make_event_list, days)

    def _event_days(self, program_id: str, wanted: DayFilter) -> list[EventDay]:
        program = self._live_state.program_index.find(program_id)
        now = datetime.fromtimestamp(self._live_state.current_time() if wanted.active else 0.0, UTC)
        return [] if program is None else [day for day in event_days(program) if wanted.includes(day, now)]

    def _find_events(self, wanted: DayFilter, skip: int, limit: int) -> list[EventDay]:
        """A page of the events of all programs. Programs before it are counted by groups, and looked at in none."""
        index = self._live_state.program_index
        groups = index.groups
        sizes = np.array([len(self._event_days(example, wanted)) for example in groups.examples], np.int64)
        ends = np.cumsum(sizes[groups.numbers])  # events up to each program
        first, stop = (int(np.searchsorted(ends, skip, "right")), int(np.searchsorted(ends, skip + limit)) + 1)
        before = int(ends[first - 1]) if first else 0
        found = [day for program_id in index.ids[first:stop] for day in self._event_days(program_id, wanted)]
        return found[skip - before : skip - before + limit]

    async def get_event(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        event_id = request.path_params["id"]
        program = self._require_program(event_id[: -len("-2026-11-14")])
        day = _require(next((day for day in event_days(program) if day.id == event_id), None))
        await self._live_state.load_terms([program.view.plan_digest])
        return CachedResponse.from_json(event_document(day))

    def get_notifiers(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        notifiers: JsonObject = {"WEBHOOK": False}  # there are no subscriptions
        broker = self._live_state.settings.mqtt
        if broker is not None and broker.tells_openadr_events:
            way = {"method": "ANONYMOUS"}
            notifiers["MQTT"] = {"URIS": [broker.uri], "serialization": "JSON", "authentication": way}
        return CachedResponse.from_json(notifiers)

    def get_topics(self, request: Request) -> CachedResponse:
        query_params.check_query_params(request, ())
        program = self._require_program(request.path_params["id"])
        broker = self._live_state.settings.mqtt
        if broker is None or not broker.tells_openadr_events:
            raise HTTPException(404, "there are no MQTT notifications here")
        return CachedResponse.from_json(notifier_topics(program.id))

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


def openadr_handlers(live_state: LiveState) -> dict[str, RequestHandler]:
    return OpenAdrApi(live_state).handlers()


def _make_event_list(days: list[EventDay]) -> CachedResponse:
    return CachedResponse.from_json([event_document(day) for day in days])


def _make_program_list(programs: list[Program], base_url: str) -> CachedResponse:
    return CachedResponse.from_json([program_document(program, base_url) for program in programs])


def _page_params(request: Request) -> tuple[int, int]:
    """How many objects to skip, and how many to show."""
    if not all(0 < len(target) <= 128 for target in request.query_params.getlist("targets")):
        raise HTTPException(400, "targets must be of 1 to 128 characters each")
    skip = query_params.int_param(request, "skip", 2**31 - 1) or 0
    limit = query_params.int_param(request, "limit", MAX_PAGE_SIZE)
    return skip, MAX_PAGE_SIZE if limit is None else limit


def _require(item: ItemT | None) -> ItemT:
    if item is None:
        raise HTTPException(404, "there is no such object here")
    return item


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
