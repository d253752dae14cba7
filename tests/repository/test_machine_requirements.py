"""A test whose server is missing is skipped with a reason that says what to start. In CI it fails."""

import os
import subprocess
import sys
from pathlib import PurePath

import pytest

from tests.repository.repository_files import ROOT
from tests.support.machine_requirements import markers_of, missing

NEEDS_A_SERVER = "tests/integration/storage/test_database_roles.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "status", "said"),
    [
        ("quick", 0, "no PostgreSQL server at 127.0.0.1:1: start one, or set MURMURATE_TEST_SERVER"),
        ("ci", 1, "in CI no test may be skipped: no PostgreSQL server at 127.0.0.1:1"),
    ],
)
def test_without_a_server_a_developer_sees_what_was_skipped_and_a_run_in_ci_fails(profile, status, said):
    environment = os.environ | {
        "MURMURATE_TEST_SERVER": "postgresql://postgres@127.0.0.1:1",
        "HYPOTHESIS_PROFILE": profile,
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", NEEDS_A_SERVER]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout
    assert said in done.stdout
    assert " passed" not in done.stdout
    assert ("skipped" in done.stdout.splitlines()[-1]) == (status == 0)


def test_the_longest_path_decides_about_markers():
    assert markers_of(PurePath("tests/integration/api/test_cases.py")) == ("postgres",)
    assert "mqtt" in markers_of(PurePath("tests/integration/ingest/test_mqtt_consumer.py"))
    assert "postgres" not in markers_of(PurePath("tests/integration/aggregation/test_spark_faults.py"))
    assert markers_of(PurePath("docs/notation.md")) == ()


def test_a_marker_that_needs_nothing_is_never_a_reason_to_skip():
    assert missing("slow") == missing("parametrize") == ""
