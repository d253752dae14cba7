"""What the private door offers, as an OpenAPI document. It tells nothing of whose readings come in."""

from __future__ import annotations

from typing import Any

from murmurate import __version__
from murmurate.service.board.openapi_schemas import PROBLEM, TOKEN, Schema, named, rows, strict

_JSON = "application/json"
_WHOLE: Schema = {"type": "integer", "minimum": 0}
_TIME: Schema = {"oneOf": [{"type": "string", "format": "date-time"}, _WHOLE]}
_OAUTH = ("invalid_request", "invalid_client", "invalid_scope", "unsupported_grant_type")
_WHY = {
    400: "the body is not what its media type says",
    401: "no token, or one that is unknown or has expired",
    408: "the body did not come in time",
    413: "the body is too large; send several",
    415: "the body is of none of the media types",
    503: "out of order; what was not acknowledged must be sent again",
}

_SCHEMAS: Schema = {
    "Problem": PROBLEM,
    "Token": TOKEN,
    "Receipt": strict(
        {
            "accepted": _WHOLE,
            "late": _WHOLE,
            "refused": _WHOLE,
            "refusals": rows(strict({"line": {"type": "integer", "minimum": 1}, "why": {"type": "string"}})),
        }
    ),
    "OAuthError": strict({"error": {"enum": list(_OAUTH)}}, {"error_description": {"type": "string"}}),
    "Reading": strict(
        {
            "meter": {"oneOf": [{"type": "string", "minLength": 1, "maxLength": 128}, _WHOLE]},
            "interval_start": _TIME,
            "energy_wh": {"type": "number"},  # of any value: what is out of range is clipped
        },
        {"interval_end": _TIME, "signature": {"type": "string", "pattern": "^([0-9a-fA-F]{2}){1,256}$"}},
    ),
    "TokenRequest": strict(
        {"grant_type": {"const": "client_credentials"}},
        {"client_id": {"type": "string"}, "client_secret": {"type": "string"}, "scope": {"type": "string"}},
    ),
}
_SCHEMAS["Receipt"]["properties"]["refusals"]["maxItems"] = 100


def document() -> dict[str, object]:
    """The document of the door at whose address it is found."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "murmurate: the door for head-ends",
            "version": __version__,
            "description": "Readings come in. None goes out: no answer here quotes one.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": {
            "/readings": {"post": _readings()},
            "/auth/token": {"post": _token()},
            "/metrics": {"get": _page("Figures for Prometheus.", "text/plain; version=0.0.4; charset=utf-8")},
            "/operator": {"get": _page("The operator's page, where it is served.", "text/html; charset=utf-8")},
            "/healthz": {"get": _word("It is alive.")},
            "/readyz": {"get": _word("Both databases answer; 503 says why not.")},
            "/openapi.json": {"get": _itself()},
        },
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {
                "token": {
                    "type": "oauth2",
                    "flows": {"clientCredentials": {"tokenUrl": "/auth/token", "scopes": {}}},
                },
                "basicAuth": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _as(name: str, about: str, **more: object) -> dict[str, Any]:
    return {"description": about, "content": {_JSON: {"schema": named(name)}}} | more


def _faults(*statuses: int) -> dict[str, Any]:
    return {str(status): _as("Problem", _WHY[status]) for status in statuses}


def _readings() -> dict[str, Any]:
    raw: Schema = {"type": "string", "contentMediaType": "application/octet-stream"}
    lines: Schema = {"schema": {"type": "string", "description": "one Reading a line"}}
    table = {"schema": {"type": "string", "description": "meter_id, interval_start, energy_wh below a header"}}
    media = {
        "application/x-ndjson": lines,
        "application/jsonl": lines,
        "application/vnd.apache.parquet": {"schema": raw},
        "text/csv": table,
        "application/atom+xml": {"schema": {"type": "string", "description": "Green Button (NAESB ESPI)"}},
    }
    challenge = {"WWW-Authenticate": {"required": True, "schema": {"type": "string"}}}
    return {
        "summary": "A batch of readings, at most 32 MiB. What is accepted is on disk before the answer.",
        "security": [{"token": []}],
        "requestBody": {"required": True, "content": media},
        "responses": {
            "200": _as("Receipt", "all is safe, or late"),
            "422": _as("Receipt", "the refused ones are listed, the rest is safe"),
            **_faults(400, 408, 413, 415, 503),
            "401": _as("Problem", _WHY[401], headers=challenge),
        },
    }


def _token() -> dict[str, Any]:
    form = {"application/x-www-form-urlencoded": {"schema": named("TokenRequest")}}
    return {
        "summary": "Client credentials for a token (RFC 6749, 4.4), in the body or by HTTP Basic.",
        "security": [{}, {"basicAuth": []}],
        "requestBody": {"required": True, "content": form},
        "responses": {
            "200": _as("Token", "a token for an hour"),
            "400": _as("OAuthError", "invalid_request, unsupported_grant_type or invalid_scope"),
            "401": _as("OAuthError", "invalid_client"),
            **_faults(408, 413, 503),
        },
    }


def _page(about: str, media: str) -> dict[str, Any]:
    return {
        "summary": about,
        "security": [{"basicAuth": []}],
        "responses": {
            "200": {"description": about, "content": {media: {"schema": {"type": "string"}}}},
            "401": _as("OAuthError", "invalid_client"),
            **_faults(503),
        },
    }


def _word(about: str) -> dict[str, Any]:
    content = {"text/plain; charset=utf-8": {"schema": {"type": "string"}}}
    return {"summary": about, "responses": {"200": {"description": about, "content": content}, **_faults(503)}}


def _itself() -> dict[str, Any]:
    content = {_JSON: {"schema": {"type": "object", "required": ["openapi", "paths"]}}}
    return {"summary": "This document.", "responses": {"200": {"description": "OpenAPI", "content": content}}}
