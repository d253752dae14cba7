"""The laws of a log in a bucket of a real Ceph. In PostgreSQL and in a folder: tests/fault_injection."""

import pytest
from tests.chaos.bucket_log_faults import run_faults
from tests.fault_injection.log_laws import ContractLog, LogLaws, ObjectLogLaws

from murmurate.service.storage.object_log import ObjectLogStore
from murmurate.service.storage.open_store import open_store

pytestmark = pytest.mark.ceph


@pytest.fixture(scope="module")
def object_log(ceph):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ceph.environment.items():
            patch.setenv(name, value)
        yield ContractLog(ObjectLogStore(open_store(ceph.new_address())))


@pytest.fixture
def log(object_log):
    return object_log


class TestLog(LogLaws):
    """As in PostgreSQL."""


class TestBucketLog(ObjectLogLaws):
    """As in a folder."""


@pytest.mark.usefixtures("bucket_address")
def test_publishers_that_are_killed_and_cut_off_publish_one_value_and_leave_no_gap(ceph, tmp_path):
    outcome = run_faults(ceph, tmp_path, kills=2, gateway_kills=1, cuts=1)  # more of them: .ci/long
    assert outcome.is_right(), outcome
