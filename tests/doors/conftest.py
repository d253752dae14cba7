"""The databases of the service's tests."""

from tests.service.conftest import state_dsn  # noqa: F401
