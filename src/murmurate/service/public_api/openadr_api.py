"""OpenADR 3.1 for anybody: programs and events can be read without a credential, and nothing can be written."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from murmurate.service.public_api import query_params
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.openadr import (
    OPENADR_BASE_PATH,
    EventDay,
    Program,
    event_days,
    event_document,
    notifier_topics,
    program_document,
)
from murmurate.service.public_api.response_cache import CachedResponse, HandlersByPath
from murmurate.service.web.responses import json_response

MAX_PAGE_SIZE = 50
_PAGING_PARAMS = ("skip", "limit", "targets")
_OPENADR_3_0_PARAMS = ("targetType", "targetValues")  # how version 3.0 asked for a name; clients still do
_OBJECT_ID_PATTERN = re.compile("[a-zA-Z0-9_-]{1,128}")  # objectID
_NO_OBJECT = "there is no such object here"


class OpenAdrApi:
    """The read profile."""

    def __init__(self, live_state: LiveState) -> None:
        self._live_state = live_state

    def handlers(self) -> HandlersByPath:
        base = OPENADR_BASE_PATH
        return {
            f"{base}/programs": (self.get_programs, (*_PAGING_PARAMS, "programName", *_OPENADR_3_0_PARAMS)),
            f"{base}/programs/{{id}}": (self.get_program, ()),
            f"{base}/events": (self.get_events, (*_PAGING_PARAMS, "programID", "active", "dateStart", "dateEnd")),
            f"{base}/events/{{id}}": (self.get_event, ()),
            f"{base}/notifiers": (self.get_notifiers, ()),
            f"{base}/notifiers/mqtt/topics/programs/{{id}}/events": (self.get_topics, ()),
            f"{base}/auth/server": (self.get_auth_server, ()),
        }

    async def get_programs(self, request: Request) -> CachedResponse:
        name = request.query_params.get("programName")
        if (asked := request.query_params.get("targetType")) is not None:
            if asked != "PROGRAM_NAME":
                raise HTTPException(400, "targetType must be PROGRAM_NAME")
            name = request.query_params.get("targetValues")
        skip, limit = _page_params(request)
        index, threads = self._live_state.program_index, self._live_state.bulk_threads
        base_url = self._live_state.settings.base_url
        async with threads.turn():
            ids = index.ids if name is None else [name]
            programs = [program for each in ids[skip : skip + limit] if (program := index.find(each)) is not None]
            return await threads.run_in_turn(
                lambda: CachedResponse.from_json([program_document(program, base_url) for program in programs])
            )

    def get_program(self, request: Request) -> CachedResponse:
        program = self._require_program(request.path_params["id"])
        return CachedResponse.from_json(program_document(program, self._live_state.settings.base_url))

    def _require_program(self, program_id: str) -> Program:
        program = self._live_state.program_index.find(program_id)
        if program is None:
            raise HTTPException(404, _NO_OBJECT)
        return program

    async def get_events(self, request: Request) -> CachedResponse:
        program_id = query_params.pattern_param(request, "programID", _OBJECT_ID_PATTERN)
        is_active = query_params.bool_param(request, "active")  # without days that are over
        first, last = _date_param(request, "dateStart"), _date_param(request, "dateEnd")
        skip, limit = _page_params(request)
        state, threads = self._live_state, self._live_state.bulk_threads

        def find_days(each_id: str) -> list[EventDay]:
            """Return the events of a program that the client asks for."""
            program = state.program_index.find(each_id)
            now_s = state.current_time() if is_active else 0.0
            if program is None:
                return []
            timezone = program.view.display.timezone
            today = datetime.fromtimestamp(now_s, UTC).astimezone(timezone).date() if is_active else date.min
            return [day for day in event_days(program) if max(first, today) <= day.day <= last]

        async with threads.turn():
            if program_id is not None:
                days = find_days(program_id)[skip : skip + limit]
            else:  # of all programs: those before the page are counted by groups, without a look
                examples, numbers = state.program_index.groups
                sizes = np.array([len(find_days(example)) for example in examples], np.int64)
                ends = np.cumsum(sizes[numbers])  # events up to each program
                at, stop = int(np.searchsorted(ends, skip, "right")), int(np.searchsorted(ends, skip + limit)) + 1
                begin = skip - (int(ends[at - 1]) if at else 0)
                found = [day for each_id in state.program_index.ids[at:stop] for day in find_days(each_id)]
                days = found[begin : begin + limit]
            await state.load_terms(day.program.view.plan_digest for day in days)
            return await threads.run_in_turn(lambda: CachedResponse.from_json([event_document(day) for day in days]))

    async def get_event(self, request: Request) -> CachedResponse:
        event_id = request.path_params["id"]
        program = self._require_program(event_id[: -len("-2026-11-14")])
        day = next((day for day in event_days(program) if day.id == event_id), None)
        if day is None:
            raise HTTPException(404, _NO_OBJECT)
        await self._live_state.load_terms([program.view.plan_digest])
        return CachedResponse.from_json(event_document(day))

    def get_notifiers(self, _: Request) -> CachedResponse:
        notifiers: dict[str, object] = {"WEBHOOK": False}  # there are no subscriptions
        broker = self._live_state.settings.mqtt
        if broker is not None and broker.tells_openadr_events:
            way = {"method": "ANONYMOUS"}
            notifiers["MQTT"] = {"URIS": [broker.uri], "serialization": "JSON", "authentication": way}
        return CachedResponse.from_json(notifiers)

    def get_topics(self, request: Request) -> CachedResponse:
        program = self._require_program(request.path_params["id"])
        broker = self._live_state.settings.mqtt
        if broker is None or not broker.tells_openadr_events:
            raise HTTPException(404, "there are no MQTT notifications here")
        return CachedResponse.from_json(notifier_topics(program.id))

    def get_auth_server(self, _: Request) -> CachedResponse:
        return CachedResponse.from_json(
            {"tokenURL": f"{self._live_state.settings.base_url}{OPENADR_BASE_PATH}/auth/token"}
        )


async def post_anonymous_token(request: Request) -> Response:
    """Return a token for clients that cannot do without one. It opens nothing: everything here is open."""
    query_params.check_query_params(request, ())
    token = {"access_token": "anonymous", "token_type": "Bearer", "expires_in": 86_400, "scope": "read_all"}
    return json_response(token, headers={"cache-control": "no-store"})


def _page_params(request: Request) -> tuple[int, int]:
    """Return how many objects to skip, and how many to show."""
    if not all(0 < len(target) <= 128 for target in request.query_params.getlist("targets")):
        raise HTTPException(400, "targets must be of 1 to 128 characters each")
    skip = query_params.int_param(request, "skip", 2**31 - 1) or 0
    limit = query_params.int_param(request, "limit", MAX_PAGE_SIZE)
    return skip, MAX_PAGE_SIZE if limit is None else limit


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
