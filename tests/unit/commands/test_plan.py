"""`murmurate plan` as a person runs it."""

import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from murmurate.commands.plan import make_plan_report
from murmurate.errors import MeterError
from murmurate.operations.plan_files import read_meter_summary
from murmurate.planning.household_bounds import MeterSummary
from murmurate.planning.plan import load_plan, make_plan, prove_plan
from murmurate.planning.plan_prediction import forecast_errors
from murmurate.planning.zone_file import EXAMPLE_FORECAST, EXAMPLE_ZONE_FILE, parse_zone

COMMAND = Path(sys.executable).with_name("murmurate")
BOTH = 'promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]'
BRIEF = EXAMPLE_ZONE_FILE.replace(BOTH, 'promise = ["interval: 0.5"]')  # soon planned


def run(*arguments, cwd):
    return subprocess.run([COMMAND, "plan", *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def test_the_page_says_what_an_operator_must_know_and_the_file_proves_it(tmp_path):
    example = run("--example", cwd=tmp_path)
    assert example.stdout == EXAMPLE_ZONE_FILE + EXAMPLE_FORECAST
    page = Path(__file__).parents[3] / "docs" / "how-to" / "zone-file.md"
    assert f"```toml\n{example.stdout}```" in page.read_text(encoding="utf-8")
    (tmp_path / "zone.toml").write_text(example.stdout, encoding="utf-8")
    done = run("zone.toml", "--out", "harbour.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in (
        "Plan for harbour: 801 households",
        "all prices of any 24 hours",
        "with a probability of up to 2.06·10⁻⁵",
        "forecast only, no data",
        "Its error was not measured: deviations are taken as usual.",
        "It pays: the releases add",
        "Mispricing costs the zone",
        "One household's year",
        "Stands on:",
        "Does not cover:",
        "The operator sees every reading",
    ):
        assert words in " ".join(done.stdout.split()), words
    assert load_plan((tmp_path / "harbour.json").read_text(encoding="utf-8")).zone.name == "harbour"


@pytest.mark.parametrize(("which", "bounds"), [(0, "count = 800\nbound_wh = 1000"), (1, "count = 1\nbound_wh = 20000")])
def test_meters_are_counted_from_a_file(which, bounds, tmp_path):
    (tmp_path / "these.csv").write_text("meter_id,bound_wh\na,20900\nb,20700\n", encoding="utf-8")
    (tmp_path / "zone.toml").write_text(EXAMPLE_ZONE_FILE.replace(bounds, 'meters = "these.csv"'), encoding="utf-8")
    done = run("zone.toml", cwd=tmp_path)
    assert f"{6 if which == 0 else 805} households" in done.stdout  # 2 are published as 5
    again = load_plan((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert (again.zone.kinds[which].count, again.zone.kinds[which].bound_wh) == (5, 20900)


def test_meters_of_one_household_are_counted_once_with_the_sum_of_their_bounds(tmp_path):
    path = tmp_path / "these.csv"
    rows = [f"700,{home}\n300,{home}" for home in range(9)]
    path.write_text("\n".join(["bound_wh,household", "900,b", *rows]), encoding="utf-8")
    assert read_meter_summary(path, "harbour", "flat") == MeterSummary(10, 1000, is_of_kind=False)
    path.write_text("bound_wh,household\n700,a\n900,\n", encoding="utf-8")
    with pytest.raises(MeterError, match="household is empty here and there"):
        read_meter_summary(path, "harbour", "flat")


def write_shared_table(path, columns="bound_wh,zone,kind,household"):
    """Ten flats of two meters and five shops in zone a, forty flats in zone b."""
    rows = [(500 + meter, "a", "flat", f"flat {home}") for home in range(10) for meter in range(2)]
    rows += [(7000, "a", "shop", f"shop {home}") for home in range(5)]
    rows += [(9000, "b", "flat", f"b {home}") for home in range(40)]
    chosen = [("bound_wh", "zone", "kind", "household").index(name) for name in columns.split(",")]
    path.write_text("\n".join([columns, *(",".join(str(row[at]) for at in chosen) for row in rows)]), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("zone", "kind", "found"), [("a", "flat", (10, 1001)), ("a", "shop", (5, 7000)), ("b", "flat", (40, 9000))]
)
def test_a_meter_table_is_counted_for_the_zone_and_the_kind_alone(zone, kind, found, tmp_path):
    assert read_meter_summary(write_shared_table(tmp_path / "t.csv"), zone, kind) == MeterSummary(*found)


def test_where_a_table_has_no_kinds_every_household_of_the_zone_counts(tmp_path):
    path = write_shared_table(tmp_path / "t.csv", "bound_wh,zone,household")
    assert read_meter_summary(path, "a", "anything") == MeterSummary(15, 7000, is_of_kind=False)
    path.write_text("bound_wh,kind\n300,\n200,\n", encoding="utf-8")
    assert read_meter_summary(path, "a", "anything") == MeterSummary(5, 300, is_of_kind=False)


@pytest.mark.parametrize(
    ("zone", "kind", "says"),
    [
        ("c", "flat", "zone is 'c': is not in this table; its zones are 'a', 'b'"),
        ("b", "shop", "kind is 'shop': no meter of zone 'b' is of this kind; its kinds there are 'flat'"),
    ],
)
def test_a_table_without_a_meter_of_the_zone_or_kind_is_refused(zone, kind, says, tmp_path):
    with pytest.raises(MeterError) as caught:
        read_meter_summary(write_shared_table(tmp_path / "t.csv"), zone, kind)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("300,a,flat,h\n300,b,flat,h", "household is 'h': must have one zone"),
        ("300,a,flat,h\n300,a,shop,h", "household is 'h': must have one kind"),
        ("300,a,flat,h\n300,a,,i", "kind is empty here and there"),
        ("300,a,flat,h\n300,,flat,i", "zone is empty here and there"),
    ],
)
def test_a_household_in_two_places_or_in_none_is_refused(rows, says, tmp_path):
    (tmp_path / "t.csv").write_text(f"bound_wh,zone,kind,household\n{rows}\n", encoding="utf-8")
    with pytest.raises(MeterError, match=says):
        read_meter_summary(tmp_path / "t.csv", "a", "flat")


def test_a_plan_from_a_shared_table_is_made_for_its_own_households(tmp_path):
    write_shared_table(tmp_path / "these.csv")
    zone = EXAMPLE_ZONE_FILE.replace('"harbour"', '"a"').replace('"fish market"', '"shop"')
    zone = zone.replace("count = 800\nbound_wh = 1000", 'meters = "these.csv"')
    zone = zone.replace("count = 1\nbound_wh = 20000", 'meters = "these.csv"').replace("20000", "7000")
    (tmp_path / "zone.toml").write_text(zone, encoding="utf-8")
    assert "Plan for a: 15 households" in run("zone.toml", cwd=tmp_path).stdout
    kinds = load_plan((tmp_path / "plan.json").read_text(encoding="utf-8")).zone.kinds
    assert [(kind.count, kind.bound_wh) for kind in kinds] == [(10, 1001), (5, 7000)]


def printed(plan):
    console = Console(width=100, record=True, file=io.StringIO())
    make_plan_report(plan).print_brief(console)
    return " ".join(console.export_text().split())


def test_the_example_pays_by_what_its_page_computes_and_without_a_forecast_it_does_not():
    zone = parse_zone(EXAMPLE_ZONE_FILE + EXAMPLE_FORECAST)
    plan = make_plan(zone)
    errors = forecast_errors(zone, plan.prediction, plan.noise)
    assert errors.exact < errors.private < 0.8 * errors.forecast
    share = (errors.forecast**2 - errors.private**2) / (errors.forecast**2 - errors.exact**2)
    assert f"It pays: the releases add {100 * share:.0f} % of what exact data would add" in printed(plan)
    assert "Worse than the forecast: predict prices" in printed(make_plan(parse_zone(EXAMPLE_ZONE_FILE)))
    tiny = parse_zone((EXAMPLE_ZONE_FILE + EXAMPLE_FORECAST).replace("count = 800", "count = 20"))
    assert "read_meters = false" in printed(make_plan(tiny))


def test_the_page_says_what_prices_teach_about_habits_and_asks_for_a_long_window():
    plan = make_plan(parse_zone(EXAMPLE_ZONE_FILE))
    shown = printed(plan)
    for words in (
        "about one moment, habits known",
        "all prices of a day, about being home 08:00–16:00 every day",
        "all prices of a year, about being home 08:00–16:00 every day",
        "A year's window bounds what prices tell about habits and holidays",
        "Habits, beyond what the plan says about stretches of time",
    ):
        assert words in shown, words
    asked = re.search(r'"(any 365 d: epsilon [0-9.]+, delta 1e-6)"', shown)[1]
    longer = EXAMPLE_ZONE_FILE.replace('"any moment: 1"', f'"any moment: 1", "{asked}"')
    kept = prove_plan(parse_zone(longer), plan.distribution, plan.scale_wh, plan.core_wh)
    assert kept.costs[-1].spent <= kept.costs[-1].promised
    assert "A year's window bounds" not in printed(kept)


def test_a_weaker_promise_may_take_the_noise_of_another_plan(tmp_path):
    (tmp_path / "zone.toml").write_text(
        EXAMPLE_ZONE_FILE.replace(BOTH, 'promise = ["any moment: 1"]'), encoding="utf-8"
    )
    weaker = EXAMPLE_ZONE_FILE.replace(BOTH, 'promise = ["any moment: 3"]')
    (tmp_path / "weaker.toml").write_text(weaker, encoding="utf-8")
    assert run("zone.toml", cwd=tmp_path).returncode == 0
    done = run("weaker.toml", "--noise-of", "plan.json", "--out", "weaker.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    one, other = (load_plan((tmp_path / name).read_text("utf-8")) for name in ("plan.json", "weaker.json"))
    assert np.array_equal(one.scale_wh, other.scale_wh)
    assert [str(cost.promise) for cost in other.costs] == ["any moment, habits known: 3"]
