"""What the answers of the public door look like, as JSON Schema. Nothing is in an answer that is not named here."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def strict(required: Schema, optional: Schema | None = None) -> Schema:
    """An object with these members and no others."""
    members = required | (optional or {})
    return {"type": "object", "required": list(required), "properties": members, "additionalProperties": False}


def rows(of: Schema, **more: object) -> Schema:
    return {"type": "array", "items": of} | more


def named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
MOMENT: Schema = {"type": "string", "format": "date-time", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"}
DAY: Schema = {"type": "string", "format": "date", "pattern": r"^\d{4}-\d\d-\d\d$"}
DIGEST: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
CURRENCY: Schema = {"type": "string", "minLength": 1}
URI: Schema = {"type": "string", "format": "uri"}
ID: Schema = {"type": "string", "pattern": "^[a-zA-Z0-9_-]*$", "minLength": 1, "maxLength": 128}
LENGTH: Schema = {"type": "string", "pattern": r"^PT(\d+H)?(\d+M)?(\d+S)?$"}
TICK: Schema = {"type": "string", "pattern": r"^\d+(/\d+)?$", "description": "one price step, as a fraction"}
KIND: Schema = {"enum": ["measured", "forecast", "withheld"]}
INTERVAL_S: Schema = {"type": "integer", "minimum": 60, "maximum": 86_400}
NO_PRICE: Schema = {"type": ["number", "null"], "description": "currency/kWh; null: withheld"}
NOTHING: Schema = {"type": "null"}

PROBLEM = strict(
    {
        "type": {"const": "about:blank"},
        "title": {"type": "string", "minLength": 1},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string", "minLength": 1},
    }
)
PROBLEM["description"] = "RFC 9457, in application/json, as OpenADR has it."

TOKEN = strict(
    {
        "access_token": {"type": "string", "minLength": 1},
        "token_type": {"const": "Bearer"},
        "expires_in": {"type": "integer", "minimum": 1},
        "scope": TEXT,
    }
)

_SPAN: Schema = {"start": MOMENT, "end": MOMENT}
_PERIOD = strict({"start": MOMENT, "duration": LENGTH})
_PAYLOAD: Schema = {
    "oneOf": [
        strict({"type": {"enum": ["PRICE", "PRICE_FORECAST"]}, "values": rows(NUMBER, minItems=1, maxItems=1)}),
        strict({"type": {"const": "NO_PRICE"}, "values": rows({"const": True}, minItems=1, maxItems=1)}),
    ]
}
_STEP = strict(
    {
        "id": {"type": "integer", "minimum": 0},
        "intervalPeriod": _PERIOD,
        "payloads": rows(_PAYLOAD, minItems=1, maxItems=1),
    }
)
_OF_EVENTS: Schema = {"objectType": {"const": "EVENT_PAYLOAD_DESCRIPTOR"}}
_PRICED: Schema = {"payloadType": {"enum": ["PRICE", "PRICE_FORECAST"]}, "units": {"const": "KWH"}}
_DESCRIPTOR: Schema = {
    "oneOf": [
        strict(_OF_EVENTS | _PRICED | {"currency": CURRENCY}),
        strict(_OF_EVENTS | {"payloadType": {"const": "NO_PRICE"}}),
    ]
}
_ATTRIBUTE = strict(
    {
        "type": {"enum": ["COUNTRY", "LOCATION", "BINDING_EVENTS"]},
        "values": rows({"type": ["string", "boolean"]}, minItems=1, maxItems=1),
    }
)
_OBJECT: Schema = {"id": ID, "createdDateTime": MOMENT, "modificationDateTime": MOMENT}

PUBLIC: Schema = {
    "Problem": PROBLEM,
    "Token": TOKEN,
    "Zone": strict(
        {
            "zone": TEXT,
            "currency": CURRENCY,
            "interval_s": INTERVAL_S,
            "plan": DIGEST,
            "timezone": TEXT,
            "decided_until": MOMENT,
        }
    ),
    "Now": strict(
        {
            "zone": TEXT,
            "price": NUMBER,
            "currency": CURRENCY,
            "unit": {"const": "kWh"},
            **_SPAN,
            "kind": {"enum": ["measured", "forecast"]},
            "next_price": NO_PRICE,
            "next_change": MOMENT,
        }
    ),
    "EvccRow": strict({**_SPAN, "value": NUMBER}),
    "Days": strict({"zone": TEXT, "timezone": TEXT, "recent_whole_days": rows(DAY, uniqueItems=True)}),
    "Day": strict(
        {
            "zone": TEXT,
            "day": DAY,
            "timezone": TEXT,
            "currency": CURRENCY,
            "unit": {"const": "kWh"},
            "interval_s": INTERVAL_S,
            "prices": rows(named("DayRow"), minItems=1),
        }
    ),
    "DayRow": strict(
        {**_SPAN, "price": NO_PRICE, "price_ticks": {"type": ["integer", "null"]}, "tick": TICK, "kind": KIND}
    ),
    "Tariffs": strict({"publication_timestamp": MOMENT, "prices": rows(named("TariffRow"))}),
    "TariffRow": strict(
        {
            "start_timestamp": MOMENT,
            "end_timestamp": MOMENT,
            "electricity": rows(strict({"unit": {"const": "CHF_kWh"}, "value": NUMBER}), minItems=1, maxItems=1),
        }
    ),
    "Plan": {
        "type": "object",
        "description": "plan.json as it was registered; its digest is that of its own bytes",
        "required": ["digest", "zone", "currency", "tariff", "noise", "scale_wh", "cost", "forecast_wh"],
    },
    "Program": strict(
        {
            **_OBJECT,
            "objectType": {"const": "PROGRAM"},
            "programName": ID,
            "programDescriptions": rows(strict({"URL": URI})),
            "payloadDescriptors": rows(_DESCRIPTOR, minItems=3, maxItems=3),
            "attributes": rows(_ATTRIBUTE),
            "targets": NOTHING,
        }
    ),
    "Event": strict(
        {
            **_OBJECT,
            "objectType": {"const": "EVENT"},
            "programID": ID,
            "eventName": ID,
            "priority": NOTHING,
            "targets": NOTHING,
            "payloadDescriptors": rows(_DESCRIPTOR, minItems=3, maxItems=3),
            "intervalPeriod": _PERIOD,
            "intervals": rows(_STEP, minItems=1),
        }
    ),
    "Notifiers": strict(
        {"WEBHOOK": {"const": True}},
        {
            "MQTT": strict(
                {
                    "URIS": rows(URI, minItems=1),
                    "serialization": {"const": "JSON"},
                    "authentication": strict({"method": {"const": "ANONYMOUS"}}),
                }
            )
        },
    ),
    "Topics": strict({"topics": strict(dict.fromkeys(("CREATE", "UPDATE", "DELETE", "ALL"), TEXT))}),
    "AuthServer": strict({"tokenURL": URI}),
}
