"""A role that owns nothing, for the tests of rights; an object store."""

from secrets import token_hex

import psycopg
import pytest
from tests.support.ceph_gateway import bucket_address, bucket_log_address, ceph  # noqa: F401
from tests.support.databases import SERVER


@pytest.fixture
def stranger():
    """A role with a login and no other right."""
    name = f"stranger_{token_hex(4)}"
    with psycopg.connect(f"{SERVER}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN")
        yield name
        connection.execute(f"DROP ROLE {name}")
