"""The OpenAPI files are valid OpenAPI 3.1, and have no part that is not used."""

import json
import re

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from murmurate import __version__
from murmurate.service.web.responses import openapi_document

PACKAGES = ["murmurate.service.public_api", "murmurate.service.ingest"]


def objects_of(value):
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from objects_of(inner)


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_a_document_is_valid_openapi(package):
    document = openapi_document(package, "https://prices.example.ch")
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
    assert document["info"]["version"] == __version__
    assert document["servers"] == [{"url": "https://prices.example.ch"}]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_component_is_used_and_every_reference_leads_to_one(package):
    document = openapi_document(package)
    used = set(re.findall(r'"\$ref": "#/components/(\w+/\w+)"', json.dumps(document)))
    parts = {kind: names for kind, names in document["components"].items() if kind != "securitySchemes"}
    described = {"schemas/Reading"}  # a line of a body, which no schema of a body can name
    assert used | described >= {f"{kind}/{name}" for kind, names in parts.items() for name in names}
    assert used <= {f"{kind}/{name}" for kind, names in parts.items() for name in names}


@pytest.mark.parametrize("package", PACKAGES)
def test_an_object_of_a_response_has_no_member_that_the_document_does_not_name(package):
    schemas = openapi_document(package)["components"]["schemas"]
    plan = schemas.pop("Plan", {})  # served as it was registered
    assert plan.get("additionalProperties") is None
    objects = [one for one in objects_of(schemas) if one.get("type") == "object"]
    assert len(objects) >= 6
    for one in objects:
        assert one["additionalProperties"] is False
        assert set(one["required"]) <= one["properties"].keys()
