"""How far is the demand that a price is made for from what zones of a foreign world use?

Every way to price is judged on the same zones, in % of their mean use, plus or minus one standard error over zones;
the first four weeks are not counted. With photovoltaics the truth is the net load, in % of mean import. The checks say
whether the world is like published ones, and whether the ways keep the rules. Equal seeds give equal figures.

    python -m research.foreign_world                                     # both seasons, 8 zones: some minutes
    python -m research.foreign_world --seasons winter --homes 1000 --zones 12 --seed 2
    python -m research.foreign_world --quick                             # one season, five weeks: under a minute
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from benchmarks.goals import Goals

from murmurate.prediction.public_forecast import PublicForecast
from murmurate.units import BoolArray, FloatArray, IntArray
from research.foreign_world.homes import SLOTS
from research.foreign_world.predictors import (
    Predictor,
    Releases,
    find_leak,
    predict_echo,
    predict_flat,
    predict_from_regional_load,
    predict_from_weather,
    predict_time_of_use,
)
from research.foreign_world.product import ProductPlan, know_exactly, know_privately
from research.foreign_world.region import Public, Season, World, read_weather, simulate_world

SAMPLE, QUARTERS_OF_A_YEAR = 2_500, 35_040
QUORUM = 0.9  # of a zone's meters must report, or nothing is released
MISSING = (0.0, 0.05, 0.10, 0.20)
MAX_WH = 32_000  # no reading is larger
# What must be reached: error with 1,000 homes, by season and photovoltaics, in %; points that silent meters cost.
MOST_ERROR = {("winter", False): 9.0, ("summer", False): 9.0, ("winter", True): 18.0, ("summer", True): 30.0}
MOST_FOR_SILENT = 0.3
WORST_ZONE = 1.07  # of the error of the forecast alone: 1.02 is wanted, and reached in the mean; decision 26 says why
PRICE, BASE = "product, private price", "product, its public forecast alone"
PUBLIC_WAYS: dict[str, Predictor] = {
    "flat": predict_flat,
    "time of use": predict_time_of_use,
    "calendar and weather": predict_from_weather,
    "the same and regional load, 1 h late": predict_from_regional_load,
}


class Size(NamedTuple):
    """Zones of one size in one season, and what is judged there."""

    world: World
    homes: int
    first_counted: int  # interval
    pv: bool

    @property
    def public(self) -> Public:
        return self.world.tell_public(self.homes, pv=self.pv)

    def sums_wh(self, low_wh: int, high_wh: int, reported: list[BoolArray] | None = None) -> IntArray:
        """Return the sums of clipped readings [interval, zone]. A meter that did not report counts as 0."""
        sums = []
        for number, readings in enumerate(self.world.readings_wh(self.homes, pv=self.pv)):
            clipped = np.clip(readings, low_wh, high_wh)
            sums.append((clipped if reported is None else clipped * reported[number]).sum(axis=1, dtype=np.int64))
        return np.stack(sums, axis=1)

    def errors(self, estimate_wh: FloatArray | IntArray, truth_wh: IntArray, of_wh: IntArray) -> FloatArray:
        """Return the rms error of each zone, in % of the mean of `of_wh` [zone]."""
        counted = slice(self.first_counted, None)
        rms = np.sqrt(((estimate_wh - truth_wh)[counted] ** 2).mean(axis=0))
        return np.asarray(100 * rms / of_wh[counted].mean(axis=0))


def judge_product(
    size: Size, truth_wh: IntArray, forecasts: Sequence[PublicForecast], name: str = ""
) -> dict[str, FloatArray]:
    """Judge the product with what it knows before the first release: a draw of the noise for each of the forecasts."""
    public, imported, found = size.public, size.sums_wh(0, MAX_WH), []
    usable, counted, bounds = np.ones(truth_wh.shape, np.bool_), slice(size.first_counted, None), set()
    for seed, forecast in enumerate(forecasts, 1):
        plan = ProductPlan(public, forecast)
        sums_wh = size.sums_wh(-plan.export_bound_wh, plan.bound_wh)
        made = plan.predict(public, plan.release(sums_wh, usable, seed))
        within = np.abs(made.demand_wh - truth_wh) <= 1.96 * plan.stated_wh
        stated = 100 * plan.stated_wh / imported[counted].mean(axis=0)  # [zone]
        both = (size.errors(each, truth_wh, imported) for each in made)
        found.append((*both, stated, 100 * within[counted].mean(axis=0)))
        bounds.add((-plan.export_bound_wh, plan.bound_wh))
    errors, of_forecast, stated, covered = (_rms(each) for each in zip(*found, strict=True))
    near = np.abs(stated / errors - 1)
    print(
        f"{size.homes:,} homes, {PRICE}{name}: predicted {_rms(stated):.1f} %, within 10 % (15 %) of the error in"
        f" {np.mean(near <= 0.1):.0%} ({np.mean(near <= 0.15):.0%}) of zones, at most"
        f" {np.max(errors / of_forecast):.2f} times that of the forecast alone, ranges {sorted(bounds)} Wh",
        flush=True,
    )
    return {
        BASE + name: of_forecast,
        PRICE + name: errors,
        f"{PRICE}{name}: error / predicted": errors / stated,
        f"{PRICE}{name}: 95 % band covers, %": covered,
    }


def _rms(values: Sequence[FloatArray] | Sequence[float] | FloatArray) -> FloatArray:
    return np.asarray(np.sqrt((np.array(values) ** 2).mean(axis=0)))


def judge_demand(size: Size, draws: int) -> dict[str, FloatArray]:
    """Return errors of the demand, or of the net load with photovoltaics, in % of mean import [zone], by way.

    The private sample has 2,500 homes, each with epsilon 1; each draw of it has other noise.
    """
    public, low_wh = size.public, -MAX_WH if size.pv else 0
    truth, imported = size.sums_wh(low_wh, MAX_WH), size.sums_wh(0, MAX_WH)
    exact = Releases(truth, np.ones(truth.shape, np.bool_), 0, 0, 0.0)
    found = {name: size.errors(way(public, exact), truth, imported) for name, way in PUBLIC_WAYS.items()}
    found["echo of exact demand"] = size.errors(predict_echo(public, exact), truth, imported)
    if size.pv:
        found["import, known exactly"] = size.errors(imported, truth, imported)
    found |= judge_product(size, truth, [know_exactly(public)] * draws)
    private = [know_privately(public, Fraction(1), seed) for seed in range(1, 1 + draws)]
    return found | judge_product(size, truth, private, ", private sample")


def check_product(goals: Goals, name: str, homes: int, found: dict[str, FloatArray], *, pv: bool) -> None:
    """Compare the price of a plan that knows the sample exactly with what must be reached; see decision 26."""
    told, (price, base) = f"{name}, {homes:,} homes{', 12 % PV' if pv else ''}", (found[PRICE], found[BASE])
    most = MOST_ERROR[name, pv] if homes == 1000 else np.inf
    goals.print_figure(f"{told}: error", float(_rms(price)), "%", at_most=most)
    if pv and homes < 1000:  # roofs of a small zone are learned slowly: its figures are in the table
        return
    ratio, covered = found[f"{PRICE}: error / predicted"], found[f"{PRICE}: 95 % band covers, %"]
    goals.print_figure(f"{told}: error / predicted", float(_rms(ratio)), at_least=0.9, at_most=1.1)
    goals.print_figure(f"{told}: band covers", float(covered.mean()), "%", at_least=93, at_most=97)
    goals.print_figure(f"{told}: error / that of the forecast", float(_rms(price) / _rms(base)), at_most=1.02)
    worst = np.inf if pv else WORST_ZONE
    goals.print_figure(f"{told}: the same, worst zone", float((price / base).max()), at_most=worst)


def judge_missing(size: Size, shares: Sequence[float]) -> dict[str, FloatArray]:
    """Return errors of the demand where meters are silent [zone], by share. The product fills them in."""
    public, demand = size.public, size.sums_wh(0, MAX_WH)
    plan = ProductPlan(public, know_exactly(public))
    found, rng = {}, np.random.default_rng([size.world.seed, 6])
    days, zones = len(demand) // SLOTS, demand.shape[1]
    for share in shares:
        swing = np.repeat(rng.standard_normal((2 * days, zones)), SLOTS // 2, axis=0)  # for half a day each
        silent = np.clip(share * (1 + 0.5 * swing), 0, 0.6)  # [interval, zone]
        order = np.repeat(rng.random((days, size.homes)), SLOTS, axis=0)  # who is silent first, new each day
        reported = [order >= silent[:, [zone]] for zone in range(zones)]
        usable = np.stack([each.mean(axis=1) >= QUORUM for each in reported], axis=1)
        releases = plan.release(size.sums_wh(0, plan.bound_wh, reported), usable, size.world.seed)
        missing = size.homes - np.stack([each.sum(axis=1) for each in reported], axis=1)
        name = f"{share:.0%} silent ({usable.mean():.0%} of intervals measured)"
        found[name] = size.errors(plan.predict(public, releases, missing).demand_wh, demand, demand)
    return found


def check_world(goals: Goals, world: World, name: str) -> None:
    """Compare the homes of a season with published ranges."""
    use_wh = np.concatenate([zone.use_wh for zone in world.zones], axis=1)
    zone, homes = world.zones[0], use_wh.shape[1]
    made_wh = use_wh.sum(dtype=np.int64) - sum(
        int(each.sum(dtype=np.int64)) for each in world.readings_wh(homes, pv=True)
    )
    sun = read_weather().irradiance.sum() / (zone.irradiance.sum() / 4)  # of a year, over the season's
    day_wh = use_wh.mean(axis=1).reshape(-1, SLOTS).mean(axis=0)
    for what, figure, unit, low, high in (
        # German homes use 2,500 to 3,500 kWh a year (BDEW, Destatis); a tenth with a car and a heat pump adds to that
        ("mean use", use_wh.mean() * QUARTERS_OF_A_YEAR / 1000, "kWh a year", 2300, 4500),
        ("peak of the mean day", day_wh.argmax() / 4, "h", 17, 21),
        ("largest quarter of an hour of the mean day / mean", day_wh.max() / day_wh.mean(), "", 1.5, 2.8),
        ("smallest / mean", day_wh.min() / day_wh.mean(), "", 0.25, 0.65),
        ("peak demand a home, diversified", 4 * use_wh.mean(axis=1).max() / 1000, "kW", 0.6, 2.5),
        # over a year 0.4 and more; homes differ less in a season without heating
        ("spread of homes / mean", use_wh.mean(axis=0).std() / use_wh.mean(), "", 0.35, 0.9),
        ("sd of single readings / mean", use_wh[::7].std() / use_wh.mean(), "", 1.2, 3.0),
        # PVGIS has 950 to 1,050 kWh for a kW that faces south there; flat and east or west plants yield less
        (
            "yield of 1 kW",
            made_wh / 1000 / sum(each.pv_kw.sum() for each in world.zones) * sun,
            "kWh a year",
            800,
            1100,
        ),
    ):
        goals.print_figure(f"{name}: {what}", float(figure), unit, at_least=low, at_most=high)


def check_ways(goals: Goals, size: Size, name: str) -> None:
    """Check that the noise is the plan's, and that no way uses what is known later."""
    public, demand = size.public, size.sums_wh(0, MAX_WH)
    plan = ProductPlan(public, know_exactly(public))
    sums_wh = size.sums_wh(0, plan.bound_wh)
    releases = plan.release(sums_wh, np.ones(demand.shape, np.bool_), size.world.seed)
    sd_ratio = float((releases.noisy_wh - sums_wh).std()) / releases.noise_sd_wh
    goals.print_figure(f"{name}: sd of the noise drawn / planned", sd_ratio, at_least=0.97, at_most=1.03)
    ways: list[Predictor] = [*PUBLIC_WAYS.values(), predict_echo, plan]
    leak = max(find_leak(way, public, releases, len(demand) // 2) for way in ways)
    goals.print_figure(f"{name}: what later numbers change", leak, "Wh", at_most=0)


def table_lines(title: str, columns: dict[int, dict[str, FloatArray]]) -> list[str]:
    """Return the lines of a table: a row for each way, a column for each size of zones."""
    lines = [f"{title:<76}" + "".join(f"{f'{homes:,} homes':>16}" for homes in columns)]
    for name in next(iter(columns.values())):
        cells = [columns[homes][name] for homes in columns]
        spread = [each.std(ddof=1) / len(each) ** 0.5 if len(each) > 1 else np.nan for each in cells]
        digits = 2 if name.endswith("predicted") else 1
        texts = [f"{_rms(each):.{digits}f} ± {se:.{digits}f}" for each, se in zip(cells, spread, strict=True)]
        lines.append(f"{name:<76}" + "".join(f"{text:>16}" for text in texts))
    return lines


def main() -> int:
    """Print a table for each season. Return 1 where a check fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seasons", nargs="+", choices=[season.name for season in Season])
    parser.add_argument("--homes", nargs="+", type=int)
    parser.add_argument("--zones", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="winter, five weeks, 3 zones of 300 and 1,000 homes")
    options = parser.parse_args()
    quick, goals, lines = options.quick, Goals(), list[str]()
    seasons = options.seasons or (["winter"] if quick else [season.name for season in Season])
    sizes = options.homes or ([300, 1000] if quick else [100, 300, 1000])
    zones, days, first = options.zones or (3 if quick else 8), 35 if quick else 112, SLOTS * (14 if quick else 28)
    for name in seasons:
        world = simulate_world(Season[name], options.seed, zones=zones, homes=max(sizes), days=days, sample=SAMPLE)
        check_world(goals, world, name)
        check_ways(goals, Size(world, max(sizes), first, pv=False), name)
        plain = {homes: Size(world, homes, first, pv=False) for homes in sizes}
        with_pv = {homes: Size(world, homes, first, pv=True) for homes in (sizes[-1:] if quick else sizes)}
        told = f"{name}, {zones} zones, seed {options.seed}"
        for title, of_homes in (
            ("demand, error in % of mean", plain),
            ("12 % PV: net load, % of mean import", with_pv),
        ):
            judged = {homes: judge_demand(size, 1 if quick else 3) for homes, size in of_homes.items()}
            if not quick:
                for homes, found in judged.items():
                    check_product(goals, name, homes, found, pv=of_homes is with_pv)
            lines += table_lines(f"{told}: {title}", judged)
        missing = judge_missing(plain[max(sizes)], (0.10,) if quick else MISSING)
        lines += table_lines(f"{told}: demand, silent meters", {max(sizes): missing})
        if not quick:
            none, _, tenth, _ = (float(_rms(each)) for each in missing.values())
            goals.print_figure(f"{name}: a tenth silent costs", tenth - none, "points", at_most=MOST_FOR_SILENT)
    print("\n".join(lines))
    return goals.exit_status()


if __name__ == "__main__":
    sys.exit(main())
