"""A sample with a fault is refused, with its place."""

import pytest

from murmurate.errors import ReadingError
from murmurate.lab.sample_file import read_sample

HEAD = "interval,household,energy_wh,occupied"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", r"is with columns .*: must have the columns interval, household"),
        (f"{HEAD}\n0,0,2.5,1\n", r":2 is not readable: must be whole numbers"),
        (f"{HEAD}\n0,0,2,1\n0,0,3,1\n", r"is 2 rows: must have one row for each of 1 intervals and 1 households"),
        (f"{HEAD}\n0,0,-4,1\n", r"\[0, 2\] is -4: must be 0 or more"),
        (f"{HEAD}\n0,0,4,2\n", r"occupied\[0\] is 2: must be 0 or 1"),
        (f"{HEAD},kind\n0,0,2,1,flat\n1,0,2,1,hut\n", r"is with several kinds for a household"),
    ],
)
def test_a_sample_with_a_fault_is_refused(text, says, tmp_path):
    (tmp_path / "sample.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ReadingError, match=says):
        read_sample(tmp_path / "sample.csv")
