"""What the public door offers, as an OpenAPI document: every path, every parameter, every answer."""

from __future__ import annotations

from typing import Any

from murmurate import __version__
from murmurate.service.board.openapi_schemas import DIGEST, ID, PUBLIC, Schema, named, rows

_OPENADR = "/openadr3/3.1.0"
_JSON = "application/json"
_ABOUT = """\
Prices for everybody, without a credential. A query parameter that is not named here, or named twice, is refused (400).
Every path that answers GET answers HEAD; any other method gets 405 with Allow. Every answer with an ETag gets 304 where
If-None-Match names it. What is for ever (whole days, plans) may be kept for ever; the rest moves."""
_FAULTS = {
    400: "a parameter is not what it must be; `detail` says what it must be",
    404: "there is no such thing here, or not yet",
    503: "out of order, or busy; try again after Retry-After",
}
_TIME = {"type": "string", "format": "date-time", "minLength": 17, "maxLength": 40}


def document(base_url: str) -> dict[str, object]:
    """The document of the door that everybody sees at `base_url`."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "murmurate: electricity rates that do not tell who is home",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": base_url}],
        "paths": _zones() | _long() | _openadr() | _small(),
        "components": {"schemas": PUBLIC},
    }


def faults(statuses: dict[int, str]) -> dict[str, Any]:
    """The answers that say what went wrong."""
    content = {_JSON: {"schema": named("Problem")}}
    return {str(status): {"description": why, "content": content} for status, why in statuses.items()}


def _get(about: str, what: Schema, *, given: list[Schema] | None = None, media: str = _JSON, lost: bool = True) -> Any:
    """A path whose answer has an ETag. `lost`: whether it can be 404."""
    etag = {"ETag": {"required": True, "schema": {"type": "string", "pattern": '^"[0-9a-f]{32}"$'}}}
    etag["Cache-Control"] = {"required": True, "schema": {"type": "string", "pattern": "^public, max-age="}}
    known = {status: why for status, why in _FAULTS.items() if lost or status != 404}
    answers: dict[str, Any] = {
        "200": {"description": about, "headers": etag, "content": {media: {"schema": what}}},
        "304": {"description": "what If-None-Match names is still so", "headers": etag},
    }
    return {"get": {"summary": about, "parameters": given or [], "responses": answers | faults(known)}}


def _flow(about: str, media: str, given: list[Schema]) -> Any:
    """A path whose answer is written while it is read."""
    answers = {"200": {"description": about, "content": {media: {"schema": {"type": "string"}}}}}
    return {"get": {"summary": about, "parameters": given, "responses": answers | faults(_FAULTS)}}


def _in_path(name: str, schema: Schema, about: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": schema, "description": about}


def _in_query(name: str, schema: Schema, about: str) -> Schema:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": about}


_ZONE = _in_path("zone", {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}, "one that /zones lists")
_PAST = {"type": "string", "format": "date", "pattern": r"^\d{4}-\d\d-\d\d$"}


def _stretch(start: str, end: str) -> list[Schema]:
    about = "with its zone, such as 2026-11-14T00:00:00Z; at most a year from start to end"
    return [_ZONE, _in_query(start, _TIME, about), _in_query(end, _TIME, f"{about}; not part of it")]


def _zones() -> dict[str, Any]:
    at = "/zones/{zone}"
    wide = _in_query("forecast", {"type": "boolean"}, "also what the plan expects after the final prices")
    day = _in_path("day", _PAST, "a local day of the zone")
    span = _stretch("start_timestamp", "end_timestamp")
    prices = rows(named("EvccRow"))
    return {
        "/zones": _get("All zones.", rows(named("Zone")), lost=False),
        f"{at}/now": _get("What a kilowatt-hour costs now; 404 where it has no price.", named("Now"), given=[_ZONE]),
        f"{at}/evcc": _get("Final prices from now on, as evcc reads them.", prices, given=[_ZONE, wide]),
        f"{at}/days": _get("The recent local days that are whole.", named("Days"), given=[_ZONE]),
        f"{at}/days/{{day}}.json": _get(
            "A local day, whole and for ever; 404 until it is whole.", named("Day"), given=[_ZONE, day]
        ),
        f"{at}/vse/v1/tariffs": _get(
            "Tariffs as the VSE has them; 404 for other currencies than CHF.", named("Tariffs"), given=span
        ),
    }


def _long() -> dict[str, Any]:
    text: Schema = {"type": "string"}
    parquet, span = "application/vnd.apache.parquet", _stretch("start", "end")
    last = {"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"}}
    history = "Prices of a stretch, at most a year; without a stretch of the last week."
    lines = "application/x-ndjson"
    return {
        "/zones/{zone}/history.csv": _get(history, text, given=span, media="text/csv; charset=utf-8"),
        "/zones/{zone}/history.parquet": _get(history, {}, given=span, media=parquet),
        "/zones/{zone}/stream": _flow(
            "Each price as it becomes public (server-sent events).", "text/event-stream", [_ZONE, last]
        ),
        "/zones/{zone}/log.jsonl": _flow("The log of a zone, for `murmurate verify`.", lines, [_ZONE]),
        "/log.jsonl": _flow("The log, for `murmurate verify`.", lines, []),
        "/plans/{digest}.json": _get(
            "A plan, for ever.", named("Plan"), given=[_in_path("digest", DIGEST, "SHA-256 of the plan")]
        ),
    }


def _openadr() -> dict[str, Any]:
    one = [_in_path("id", ID, "the id of the object")]
    day = {"anyOf": [{"type": "string", "format": "date"}, _TIME]}
    paging = [
        _in_query("skip", {"type": "integer", "format": "int32", "minimum": 0, "maximum": 2**31 - 1}, "how many"),
        _in_query("limit", {"type": "integer", "format": "int32", "minimum": 0, "maximum": 50}, "at most so many"),
        _in_query("targets", rows({"type": "string", "minLength": 1, "maxLength": 128}), "nothing here has targets"),
    ]
    events = [
        *paging,
        _in_query("programID", ID, "of this program"),
        _in_query("active", {"type": "boolean"}, "without days that are over"),
        _in_query("dateStart", day, "of this local day or later"),
        _in_query("dateEnd", day, "of this local day or earlier"),
    ]
    names = [
        _in_query("programName", {"type": "string"}, "of this name"),
        _in_query("targetType", {"const": "PROGRAM_NAME"}, "the same, as version 3.0 asked"),
        _in_query("targetValues", {"type": "string"}, "the name, where targetType is given"),
    ]
    topics = f"{_OPENADR}/notifiers/mqtt/topics/programs/{{id}}/events"
    found = {"description": "a token that opens nothing", "content": {_JSON: {"schema": named("Token")}}}
    token = {
        "summary": "A token for clients that cannot do without one; the body is not looked at.",
        "responses": {"200": found, **faults({status: _FAULTS[status] for status in (400, 503)})},
    }
    return {
        f"{_OPENADR}/programs": _get(
            "Programs, by id.", rows(named("Program"), maxItems=50), given=[*paging, *names], lost=False
        ),
        f"{_OPENADR}/programs/{{id}}": _get("A program.", named("Program"), given=one),
        f"{_OPENADR}/events": _get("Events, by id.", rows(named("Event"), maxItems=50), given=events, lost=False),
        f"{_OPENADR}/events/{{id}}": _get("An event: a local day of prices.", named("Event"), given=one),
        f"{_OPENADR}/notifiers": _get("How changes are told.", named("Notifiers"), lost=False),
        topics: _get("Where the broker tells of a program's events.", named("Topics"), given=one),
        f"{_OPENADR}/auth/server": _get("Where a token is to be had.", named("AuthServer"), lost=False),
        f"{_OPENADR}/auth/token": {"post": token},
    }


def _small() -> dict[str, Any]:
    def word(about: str, which: tuple[int, ...]) -> Any:
        content = {"text/plain; charset=utf-8": {"schema": {"type": "string"}}}
        answers = {"200": {"description": about, "content": content}}
        return {"get": {"summary": about, "responses": answers | faults({at: _FAULTS[at] for at in which})}}

    return {
        "/healthz": word("It is alive.", (400, 503)),
        "/readyz": word("It is up to date with the log; 503 says why it is not.", (400, 503)),
        "/openapi.json": _get("This document.", {"type": "object", "required": ["openapi", "paths"]}, lost=False),
    }
