"""OpenADR 3.1 for anybody: programs and events can be read without a credential, and nothing can be written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from murmurate.service.board import queries
from murmurate.service.board.board import Board, Ready
from murmurate.service.board.openadr_event import days, event_of
from murmurate.service.board.openadr_program import notifier_topics, programs, programs_of, slug
from murmurate.service.web import as_json

BASE = "/openadr3/3.1.0"
MOST_LISTED = 50
_PAGING = ("skip", "limit", "targets")
_BEFORE_3_1 = ("targetType", "targetValues")  # how version 3.0 asked for a name; clients still do
_ID = re.compile("[a-zA-Z0-9_-]{1,128}")  # objectID

Document = dict[str, object]
T = TypeVar("T")


class OpenAdrDoor:
    """The read profile."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def paths(self) -> dict[str, Callable[[Request], Ready]]:
        topics = f"{BASE}/notifiers/mqtt/topics"
        return {
            f"{BASE}/programs": self.programs,
            f"{BASE}/programs/{{id}}": self.program,
            f"{BASE}/events": self.events,
            f"{BASE}/events/{{id}}": self.event,
            f"{BASE}/notifiers": self.notifiers,
            f"{topics}/programs/{{id}}/events": self.topics,
            f"{BASE}/auth/server": self.auth_server,
        }

    def programs(self, request: Request) -> Ready:
        queries.refuse_unknown(request, (*_PAGING, "programName", *_BEFORE_3_1))
        name = request.query_params.get("programName")
        if (asked := request.query_params.get("targetType")) is not None:
            if asked != "PROGRAM_NAME":
                raise HTTPException(400, "targetType must be PROGRAM_NAME")
            name = request.query_params.get("targetValues")
        found = [one for one in self._programs() if name in {None, one["programName"]}]
        return Ready.json(_page(request, found))

    def program(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ())
        return Ready.json(_only(one for one in self._programs() if one["id"] == request.path_params["id"]))

    def _programs(self) -> list[Document]:
        return programs(self._board.views.values(), self._board.settings.base_url)

    def events(self, request: Request) -> Ready:
        queries.refuse_unknown(request, (*_PAGING, "programID", "active", "dateStart", "dateEnd"))
        program = queries.word(request, "programID", _ID)
        active, first, last = queries.flag(request, "active"), _day(request, "dateStart"), _day(request, "dateEnd")
        now = datetime.fromtimestamp(self._board.clock.now(), UTC)
        found = []
        for view in self._board.views.values():
            today = now.astimezone(view.sign.timezone).date() if active else date.min
            if program is None or any(one.id == program for one in programs_of(view)):
                found += [one for one in days(view) if max(first, today) <= one.day <= last]
        wanted = (one for one in found if program in {None, one.program.id})
        return Ready.json([event_of(one) for one in _page(request, sorted(wanted, key=lambda one: one.id))])

    def event(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ())
        name = request.path_params["id"]
        views = [view for view in self._board.views.values() if name.startswith(slug(view.zone))]
        return Ready.json(event_of(_only(day for view in views for day in days(view) if day.id == name)))

    def notifiers(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ())
        found: Document = {"WEBHOOK": True}  # the schema wants it so; subscriptions are refused
        broker = self._board.settings.mqtt
        if broker is not None and broker.notices:
            way = {"method": "ANONYMOUS"}
            found["MQTT"] = {"URIS": [broker.uri], "serialization": "JSON", "authentication": way}
        return Ready.json(found)

    def topics(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ())
        program = _only(one for one in self._programs() if one["id"] == request.path_params["id"])
        broker = self._board.settings.mqtt
        if broker is None or not broker.notices:
            raise HTTPException(404, "there are no notices by MQTT here")
        return Ready.json(notifier_topics(str(program["id"])))

    def auth_server(self, request: Request) -> Ready:
        queries.refuse_unknown(request, ())
        return Ready.json({"tokenURL": f"{self._board.settings.base_url}{BASE}/auth/token"})


async def post_token(request: Request) -> Response:
    """A token for clients that cannot do without one. It opens nothing: everything here is open."""
    queries.refuse_unknown(request, ())
    token = {"access_token": "anonymous", "token_type": "Bearer", "expires_in": 86_400, "scope": "read_all"}
    return as_json(token, headers={"cache-control": "no-store"})


def openadr_routes(board: Board) -> dict[str, Callable[[Request], Ready]]:
    return OpenAdrDoor(board).paths()


def _page(request: Request, found: list[T]) -> list[T]:
    if not all(0 < len(target) <= 128 for target in request.query_params.getlist("targets")):
        raise HTTPException(400, "targets must be of 1 to 128 characters each")
    skip = queries.whole(request, "skip", 2**31 - 1) or 0
    limit = queries.whole(request, "limit", MOST_LISTED)
    return found[skip : skip + (MOST_LISTED if limit is None else limit)]


def _only(found: Iterable[T]) -> T:
    for one in found:
        return one
    raise HTTPException(404, "there is no such object here")


def _day(request: Request, name: str) -> date:
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
