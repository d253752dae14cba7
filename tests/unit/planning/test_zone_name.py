"""The name of a zone is an address: one that cannot be read is refused before the zone is opened."""

from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response
from starlette.routing import Route

from murmurate.errors import ZoneFileError
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.types import MAX_ZONE_NAME_BYTES, is_zone_name

UNREADABLE = [
    "",
    "east/1",
    "/",
    "a\\\\b",
    ".",
    "..",
    ".hidden",
    " harbour",
    "harbour ",
    "two\\nlines",
    "nul\\u0000",
    "x" * 201,
]


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_zone_file_with_a_name_that_cannot_be_an_address_is_refused(name):
    with pytest.raises(ZoneFileError, match=r"line 1: .*no slash or backslash"):
        parse_zone(EXAMPLE_ZONE_FILE.replace('name = "harbour"', f'name = "{name}"'))


@pytest.mark.parametrize("name", ["harbour", "Zürich, unter dem Berg", "old town?#%", "a+b", "東京", "x" * 200])
def test_a_name_in_any_language_is_taken(name):
    assert parse_zone(EXAMPLE_ZONE_FILE.replace('name = "harbour"', f'name = "{name}"')).name == name


@given(st.text(max_size=MAX_ZONE_NAME_BYTES).filter(is_zone_name))
def test_every_name_that_is_taken_is_found_at_its_address(name):
    route = Route("/zones/{zone}/now", lambda _: Response())
    found = route.path_regex.match(unquote(f"/zones/{quote(name, safe='')}/now"))
    assert found.group("zone") == name
