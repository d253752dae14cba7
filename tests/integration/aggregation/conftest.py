"""One Spark cluster and one session for all tests of this folder."""

import pytest
from tests.support.spark_cluster import shared


@pytest.fixture(scope="session")
def it(pytestconfig):
    return shared(pytestconfig.add_cleanup)[0]


@pytest.fixture(scope="session")
def spark(pytestconfig):
    return shared(pytestconfig.add_cleanup)[1]
