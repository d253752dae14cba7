"""`murmurate forecast`: each source, its messages, and the plan that is made with the file."""

import re
import zipfile
from fractions import Fraction

import numpy as np
import pytest
from tests.support.predicted_zones import zone_text
from tests.support.reading_dialects import write_imported

from murmurate.commands.forecast import ForecastCalendar, forecast_from_readings, make_forecast
from murmurate.commands.plan import plan_zone
from murmurate.errors import ModelError, MurmurateError, PrivacyError, ZoneFileError
from murmurate.lab.forecast_files import read_h25, read_history, read_holidays, read_weather
from murmurate.operations.console import stdout
from murmurate.operations.sample_ledger import ledger_path
from murmurate.planning.plan import load_plan
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE
from murmurate.prediction.private_sample import SAMPLE_BOUNDS_WH
from murmurate.prediction.public_forecast import PublicForecast

MONTHS = [f"month {number}" for number in range(12)]


def run(path, **options):
    make_forecast(**{"time_zone": "Europe/Lisbon", "out": path / "forecast.json"} | options)
    return PublicForecast.from_json((path / "forecast.json").read_text(encoding="utf-8"))


def h25_text():
    """A made table in the form of the standard load profile."""
    lines = ["," + ",".join(month for month in MONTHS for _ in range(3)), "[kWh]," + ",".join(["SA", "FT", "WT"] * 12)]
    for slot in range(96):
        values = [20 + 10 * np.sin(slot / 15) + kind for _ in MONTHS for kind in range(3)]
        lines.append(f"{slot // 4:02}:{15 * (slot % 4):02}-x," + ",".join(f"{value:.3f}" for value in values))
    return "\n".join(lines)


FIRST_S = 1_736_121_600  # a Monday


def sun_of(hour):
    """Irradiance of hours from the first on [W/m^2]: some days are bright."""
    return np.maximum(np.sin((hour % 24 - 6) * np.pi / 12), 0) * (100 + 400 * (np.sin(hour // 24 * 2.0) + 1))


def hourly_csv(path, hours):
    rows = [
        f"{np.datetime64(FIRST_S + 3600 * n, 's')}Z,{100 + 30 * np.sin(n / 4):.3f},{5 + 4 * np.sin(n / 50):.2f},"
        f"{sun_of(n):.1f}"
        for n in range(hours)
    ]
    path.write_text("\n".join(["start,kwh,temperature_c,irradiance", *rows]), encoding="utf-8")
    return path


def test_a_standard_load_profile_from_its_file_or_its_wheel(tmp_path, capsys):
    (tmp_path / "h25.csv").write_text(h25_text(), encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "demandlib.whl", "w") as wheel:
        wheel.writestr("demandlib/bdew/bdew_data/h25.csv", h25_text())
    tables = [read_h25(tmp_path / name, 3500.0) for name in ("h25.csv", "demandlib.whl")]
    assert np.array_equal(*tables)
    made = run(tmp_path, h25=3500.0, profile=tmp_path / "h25.csv", interval_minutes=30)
    assert made.demand.slots_per_day == 48
    winter, summer = (made.demand.mean_wh[month].mean() for month in (0, 6))
    assert winter > 1.3 * summer
    assert "error was not measured" in capsys.readouterr().out


def test_a_history_says_how_far_it_was_off(tmp_path, capsys):
    made = run(tmp_path, history=hourly_csv(tmp_path / "demand.csv", 24 * 40), households=500, interval_minutes=60)
    assert made.error is not None
    assert "% off (rms, rolling origin)" in capsys.readouterr().out
    assert (made.demand.usual_cold_k > 5).all()
    assert made.demand.knows_sun


@pytest.mark.slow
def test_a_sample_knows_what_is_cut_off_and_what_is_fed_in_and_a_plan_is_made_with_it(tmp_path, capsys):
    rng, homes, hours = np.random.default_rng(3), 8, 24 * 36
    roof = 2 * sun_of(np.arange(hours))[:, None] * (np.arange(homes) < 2)
    write_hours(tmp_path / "sample.parquet", (rng.gamma(1.5, 200, (hours, homes)) - roof).round())
    (tmp_path / "holidays.txt").write_text("2025-01-06\n\n2025-04-18\n", encoding="utf-8")
    made = run(
        tmp_path,
        sample=tmp_path / "sample.parquet",
        epsilon="100000",
        weather=hourly_csv(tmp_path / "weather.csv", hours),
        holidays=tmp_path / "holidays.txt",
        interval_minutes=60,
    )
    assert made.holidays == (20_094, 20_196)
    assert 1000 in {each.bound_wh for each in made.above}
    assert made.demand.sun_wh == pytest.approx(-2 * 300 / 4, rel=0.2)
    shares = [each.sun_share for each in made.below]
    assert shares[0] < 0.5 < shares[-1] == 1
    assert "how that changes with cold and dark and sun, and what lies above some bounds" in shown_by(capsys)
    text = EXAMPLE_ZONE_FILE.replace("interval_minutes = 15", "interval_minutes = 60")
    text = text.replace('"any 24 h: epsilon 1, delta 1e-6", "any moment: 1"', '"any 24 h: epsilon 1"')
    zone = tmp_path / "zone.toml"
    zone.write_text(text + '\n[forecast]\nfile = "forecast.json"\nlevel = 1.1\nelasticity = 0.1\n', encoding="utf-8")
    plan_zone(zone, tmp_path / "plan.json")
    shown = capsys.readouterr().out
    assert "Prices are predicted for the interval that pays" in shown
    assert "of what exact data would add" in shown
    plan = load_plan((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert plan.prediction.scale == pytest.approx(801 * 1.1)
    assert plan.prediction.price_response.elasticity == 0.1
    assert plan.prediction.model.public.sample == (8, 10**5, Fraction(1, 10**6))
    assert "a sample of 8 households that agreed; each of them spent ε = 100000, δ = 10⁻⁶ on it." in " ".join(
        shown.split()
    )


def shown_by(capsys):
    return " ".join(capsys.readouterr().out.split())


def write_hours(path, energy_wh):
    """Write hourly readings [hour, home] from a Monday on."""
    return write_imported(path, energy_wh.astype(float), start_s=FIRST_S, interval_s=3600)


def write_sample(path, homes, days=7, largest=500):
    """Homes that use the same in every hour, but for one reading."""
    energy_wh = np.full((24 * days, homes), 400)
    energy_wh[50, 0] = largest
    return write_hours(path, energy_wh)


HOURLY = ForecastCalendar("Europe/Lisbon", (), 60, None)


def test_a_sample_of_one_household_is_refused_before_anything_is_spent(tmp_path):
    sample = write_sample(tmp_path / "sample.parquet", homes=1)
    with pytest.raises(PrivacyError, match="households is 1: must be 283 or more at epsilon 1; nothing was spent"):
        run(tmp_path, sample=sample, epsilon="1", interval_minutes=60)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sample.parquet"]


def test_forecasts_of_a_sample_state_the_sum_of_what_was_spent_and_hold_no_largest_reading(tmp_path, capsys):
    sample = write_sample(tmp_path / "sample.parquet", homes=8, largest=7431)
    with pytest.raises(ZeroDivisionError):
        forecast_from_readings(sample, "400", 10, HOURLY, tmp_path / "failed.json", BrokenNoise(), stdout)
    assert not (tmp_path / "failed.json").exists()
    made = run(tmp_path, sample=sample, epsilon="300", interval_minutes=60)
    assert made.sample == (8, 700, Fraction(2, 10**6))
    numbers = {float(number) for number in re.findall(r"[0-9.]+", made.to_json()) if number != "."}
    assert len(numbers) > 60
    assert not {7431.0, 7.431, 0.007431} & numbers
    assert tuple(each.bound_wh for each in made.above) == SAMPLE_BOUNDS_WH
    shown = shown_by(capsys)
    assert "Spent epsilon 300, delta 1e-06 of each of these households (for any data of the others)" in shown
    assert "This sample has spent epsilon 700, delta 2e-06 in 2 runs, this one included." in shown
    written = (tmp_path / "forecast.json").read_text(encoding="utf-8")
    with pytest.raises(FileExistsError):
        run(tmp_path, sample=sample, epsilon="300", interval_minutes=60)
    assert (tmp_path / "forecast.json").read_text(encoding="utf-8") == written
    assert len(ledger_path(sample).read_text(encoding="utf-8").splitlines()) == 2


class BrokenNoise:
    """Noise whose machine fails while it is drawn."""

    def draw(self, *_):
        raise ZeroDivisionError


@pytest.mark.slow
def test_a_sample_lets_the_plan_choose_the_bound_and_the_page_says_why(tmp_path, capsys):
    rng, homes, hours = np.random.default_rng(3), 30, 24 * 36
    used = np.rint(rng.gamma(0.6, 700, (hours, homes)) * (1 + 0.1 * np.sin(np.arange(hours) / 40))[:, None]).astype(int)
    write_hours(tmp_path / "sample.parquet", used)
    made = run(tmp_path, sample=tmp_path / "sample.parquet", epsilon="300", interval_minutes=60)
    zone = tmp_path / "zone.toml"
    zone.write_text(zone_text(800).replace("bound_wh = 1000", 'bound_wh = "choose"'), encoding="utf-8")
    capsys.readouterr()
    plan_zone(zone, tmp_path / "plan.json")
    shown = " ".join(capsys.readouterr().out.split())
    plan = load_plan((tmp_path / "plan.json").read_text(encoding="utf-8"))
    bound_wh = plan.zone.kinds[0].bound_wh
    assert bound_wh in {each.bound_wh for each in made.above}
    for each in made.above:
        assert f" {each.bound_wh:,} " in shown
    for words in (
        f"Bound of flat: {bound_wh:,} Wh, chosen by the plan.",
        f"is least at {bound_wh:,} Wh",
        "no reading is used",
        f"Put bound_wh = {bound_wh} into the meter table for each flat.",
    ):
        assert words in shown, words
    noise = f"rms {np.sqrt(plan.noise_variance[0]) / 1000:.2f} kWh"
    assert noise in shown
    with pytest.raises(ZoneFileError, match="without --noise-of"):
        plan_zone(zone, tmp_path / "again.json", tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "source is missing"),
        ({"h25": 3500.0, "households": 3, "history": "x"}, "source is --h25 and --history"),
        ({"h25": 0.0, "profile": "h25.csv"}, "h25 is 0"),
        ({"h25": 3500.0, "profile": "h25.csv", "interval_minutes": 20}, "must be 15, 30 or 60"),
        ({"h25": 3500.0, "interval_minutes": 17}, "must divide a day"),
        ({"h25": 3500.0, "time_zone": "Mars/Crater"}, "Mars/Crater"),
        ({"history": "demand.csv"}, "--households 1000"),
        ({"sample": "sample.parquet"}, "epsilon is missing"),
        ({"sample": "h25.csv", "epsilon": "1"}, "h25.csv is not a Parquet file: .*murmurate readings import"),
    ],
)
def test_what_cannot_be_made_says_what_is_needed(tmp_path, options, says):
    (tmp_path / "h25.csv").write_text(h25_text(), encoding="utf-8")
    paths = {name: tmp_path / value for name, value in options.items() if name in {"profile", "history", "sample"}}
    with pytest.raises(MurmurateError, match=says):
        run(tmp_path, **options | paths)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kwh\n1", "without start"),
        ("start,kwh\n2025-01-06T00:00,1", "must have an offset"),
        ("start,kwh\n2025-01-06T00:00Z,many", "line 2"),
        ("start,kwh\n2025-01-06T00:00Z,nan", "line 2"),
        ("start,kwh\n", "empty"),
        ("start,kwh\n2025-01-06T00:07Z,1", "not at an interval's start"),
        ("start,kwh\n2025-01-06T00:00Z,1\n2025-01-06T02:00Z,1", "7200 s after the line before"),
    ],
)
def test_a_history_with_a_mistake_names_its_line(tmp_path, text, says):
    (tmp_path / "history.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=says):
        read_history(tmp_path / "history.csv", ("kwh",), 24)


@pytest.mark.parametrize(
    ("text", "first", "says"),
    [
        (
            "start,kwh\n2025-01-06T00:00Z,1",
            FIRST_S,
            r"with the columns kwh: must have temperature_c \[°C\] or irradiance",
        ),
        (
            "start,irradiance\n2025-01-06T00:00Z,1",
            FIRST_S + 3600,
            "weather is of another time: must cover every interval",
        ),
    ],
)
def test_weather_of_other_columns_or_another_time_is_refused(tmp_path, text, first, says):
    (tmp_path / "weather.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=says):
        read_weather(tmp_path / "weather.csv", 24, first // 3600, 1)


def test_a_mistake_in_a_table_or_a_list_of_holidays_is_named(tmp_path):
    (tmp_path / "holidays.txt").write_text("2025-12-25\nboxing day\n", encoding="utf-8")
    with pytest.raises(ModelError, match="line 2"):
        read_holidays(tmp_path / "holidays.txt")
    (tmp_path / "h25.csv").write_text(h25_text().replace("SA", "XX"), encoding="utf-8")
    with pytest.raises(ModelError, match="another form"):
        read_h25(tmp_path / "h25.csv", 3500.0)


@pytest.mark.parametrize(
    ("forecast", "says"),
    [
        ('file = "missing.json"', ":37: file is missing.json"),
        ('file = "forecast.json"\nlevel = 0', ":38: level is 0"),
        ('file = "forecast.json"\nelasticity = 1', ":38: elasticity is 1"),
        ('file = "forecast.json"\nreference_price = "0"', ":38: reference_price is 0"),
        ('file = "forecast.json"\nfrom = "occupancy"', "file and from"),
        ('from = "above"', ":37: from is 'above': must be 'occupancy'"),
        ('file = "forecast.json"\nlevl = 1', "levl"),
    ],
)
def test_a_mistake_in_the_zone_file_is_found_in_its_line(tmp_path, forecast, says):
    (tmp_path / "h25.csv").write_text(h25_text(), encoding="utf-8")
    run(tmp_path, h25=3500.0, profile=tmp_path / "h25.csv")
    zone = tmp_path / "zone.toml"
    zone.write_text(f"{EXAMPLE_ZONE_FILE}\n[forecast]\n{forecast}\n", encoding="utf-8")
    with pytest.raises(ZoneFileError, match=says):
        plan_zone(zone, tmp_path / "plan.json")


def test_a_forecast_for_other_clocks_is_refused(tmp_path):
    (tmp_path / "h25.csv").write_text(h25_text(), encoding="utf-8")
    run(tmp_path, h25=3500.0, profile=tmp_path / "h25.csv", time_zone="Europe/Berlin")
    zone = tmp_path / "zone.toml"
    zone.write_text(f'{EXAMPLE_ZONE_FILE}\n[forecast]\nfile = "forecast.json"\n', encoding="utf-8")
    with pytest.raises(ZoneFileError, match="on those of Europe/Lisbon"):
        plan_zone(zone, tmp_path / "plan.json")


def test_a_tariff_that_falls_with_demand_is_refused(tmp_path):
    zone = tmp_path / "zone.toml"
    zone.write_text(EXAMPLE_ZONE_FILE.replace('alpha = "0.0002"', 'alpha = "-0.0002"'), encoding="utf-8")
    with pytest.raises(ZoneFileError, match="must not fall where demand rises"):
        plan_zone(zone, tmp_path / "plan.json")
