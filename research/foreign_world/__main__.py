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

from murmurate.units import BoolArray, FloatArray, IntArray
from research.foreign_world.homes import SLOTS
from research.foreign_world.predictors import (
    Predictor,
    ProductPlan,
    Releases,
    find_leak,
    forecast_with_product,
    predict_directly,
    predict_echo,
    predict_flat,
    predict_from_regional_load,
    predict_from_weather,
    predict_time_of_use,
)
from research.foreign_world.region import Public, Season, World, read_weather, simulate_world
from research.foreign_world.regression_predictor import RegressionPlan, predict_public_regression

SAMPLE, QUARTERS_OF_A_YEAR = 2_500, 35_040
QUORUM = 0.9  # of a zone's meters must report, or nothing is released
MISSING = (0.0, 0.05, 0.10, 0.20)
MAX_WH = 32_000  # no reading is larger
NO_NOISE = 10_000  # epsilon of a sample that is as good as exact
REGRESSION, CORRECTED = "public regression", "regression with slow corrections"
PUBLIC_WAYS: dict[str, Predictor] = {
    "flat": predict_flat,
    "time of use": predict_time_of_use,
    "calendar and weather": predict_from_weather,
    "the same and regional load, 1 h late": predict_from_regional_load,
    REGRESSION: predict_public_regression,
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


class Judged(NamedTuple):
    """What the product reaches in zones, over some draws of the noise of its sample."""

    errors: FloatArray  # [zone] %
    forecast_errors: FloatArray  # [zone] % without any release
    predicted: float  # % that the plan states
    bounds_wh: tuple[int, ...]  # that it chose


def judge_product(
    size: Size, truth_wh: IntArray, *, draws: int, pooled: bool, epsilon: int = 1, exact: bool = False
) -> Judged:
    """Judge today's product: forecast from the sample, plan, releases, filter. `epsilon`: that of the sample."""
    public, usable, found = size.public, np.ones(truth_wh.shape, np.bool_), []
    imported = size.sums_wh(0, MAX_WH)
    if size.pv:  # the level that an operator of today states is one of imports
        used = np.array([zone.use_wh[:, : size.homes].sum(axis=1).mean() for zone in size.world.zones])
        public = public._replace(mean_wh=public.mean_wh * imported.mean(axis=0) / used)
    for seed in range(1, 1 + draws):
        forecast = forecast_with_product(public, Fraction(epsilon), seed)
        plan = ProductPlan(public, forecast, pooled=pooled, exact=exact)
        releases = plan.release(size.sums_wh(0, plan.bound_wh), usable, seed)
        of_forecast, error = (
            size.errors(each, truth_wh, imported) for each in (plan.forecast_wh(), plan(public, releases))
        )
        found.append((error, of_forecast, 100 * plan.predicted_error, plan.bound_wh))
    errors, forecast_errors, predicted, bounds_wh = zip(*found, strict=True)
    return Judged(_rms(errors), _rms(forecast_errors), float(_rms(predicted)), bounds_wh)


def _rms(values: Sequence[FloatArray] | Sequence[float] | FloatArray) -> FloatArray:
    return np.asarray(np.sqrt((np.array(values) ** 2).mean(axis=0)))


def judge_regression(size: Size, truth_wh: IntArray, public_errors: FloatArray, *, draws: int) -> dict[str, FloatArray]:
    """Judge the regression with slow corrections over some draws of the noise; its sample has none."""
    public, plan, imported = size.public, RegressionPlan(size.public), size.sums_wh(0, MAX_WH)
    sums_wh, usable = size.sums_wh(-plan.export_bound_wh, plan.bound_wh), np.ones(truth_wh.shape, np.bool_)
    found, counted = [], slice(size.first_counted, None)
    for seed in range(1, 1 + draws):
        predicted = plan.predict(public, plan.release(sums_wh, usable, seed))
        within = np.abs(predicted.demand_wh - truth_wh) <= 1.96 * predicted.sd_wh
        found.append((size.errors(predicted.demand_wh, truth_wh, imported), 100 * within[counted].mean(axis=0)))
    errors, covered = (_rms(each) for each in zip(*found, strict=True))
    stated = 100 * plan.stated_wh / imported[counted].mean(axis=0)  # [zone]
    near = np.abs(stated / errors - 1)
    print(
        f"{size.homes:,} homes, {CORRECTED}: predicted {_rms(stated):.1f} %, within 10 % (15 %) of the error in"
        f" {np.mean(near <= 0.1):.0%} ({np.mean(near <= 0.15):.0%}) of zones, at most"
        f" {np.max(errors / public_errors):.2f} times the public error,"
        f" bounds {-plan.export_bound_wh} and {plan.bound_wh} Wh",
        flush=True,
    )
    return {
        CORRECTED: errors,
        f"{CORRECTED}: error / predicted": errors / stated,
        f"{CORRECTED}: 95 % band covers, %": covered,
    }


def judge_demand(size: Size, draws: int) -> dict[str, FloatArray]:
    """Return errors of the demand without photovoltaics [zone], and measured over predicted ones, by way."""
    public, demand = size.public, size.sums_wh(0, MAX_WH)
    exact = Releases(demand, np.ones(demand.shape, np.bool_), 0, 0, 0.0)
    found = {name: size.errors(way(public, exact), demand, demand) for name, way in PUBLIC_WAYS.items()}
    found["echo of exact demand"] = size.errors(predict_echo(public, exact), demand, demand)
    judged = {
        "product, private, alone": judge_product(size, demand, draws=draws, pooled=False),
        "product, private, pooled": judge_product(size, demand, draws=draws, pooled=True),
        "the same, sample without noise": judge_product(size, demand, draws=1, pooled=True, epsilon=NO_NOISE),
        "product, exact demand": judge_product(size, demand, draws=1, pooled=False, exact=True),
    }
    found["product, forecast"] = judged["product, private, alone"].forecast_errors
    found |= {name: each.errors for name, each in judged.items()}
    for name, each in judged.items():
        found[f"{name}: error / predicted"] = each.errors / each.predicted
        print(f"{size.homes:,} homes, {name}: predicted {each.predicted:.1f} %, bound {each.bounds_wh} Wh", flush=True)
    return found | judge_regression(size, demand, found[REGRESSION], draws=draws)


def judge_net_load(size: Size, draws: int) -> dict[str, FloatArray]:
    """Return errors of the net load where homes have photovoltaics [zone], in % of mean import, by way."""
    public, net, imported = size.public, size.sums_wh(-MAX_WH, MAX_WH), size.sums_wh(0, MAX_WH)
    exact = Releases(net, np.ones(net.shape, np.bool_), 0, 0, 0.0)
    found = {name: size.errors(way(public, exact), net, imported) for name, way in list(PUBLIC_WAYS.items())[2:]}
    found["echo of exact net load"] = size.errors(predict_echo(public, exact), net, imported)
    found["import, known exactly"] = size.errors(imported, net, imported)
    found["product, private, pooled (prices import)"] = judge_product(size, net, draws=draws, pooled=True).errors
    found["the same, sample without noise"] = judge_product(size, net, draws=1, pooled=True, epsilon=NO_NOISE).errors
    return found | judge_regression(size, net, found[REGRESSION], draws=draws)


def judge_missing(size: Size, shares: Sequence[float]) -> dict[str, FloatArray]:
    """Return errors of the demand where meters are silent [zone], by share; all with a sample without noise.

    For the product, alone, silent meters count as 0; the regression fills them in.
    """
    public, demand = size.public, size.sums_wh(0, MAX_WH)
    plan = ProductPlan(public, forecast_with_product(public, Fraction(NO_NOISE), 1), pooled=False)
    regression = RegressionPlan(public)
    found, rng = {}, np.random.default_rng([size.world.seed, 6])
    days, zones = len(demand) // SLOTS, demand.shape[1]
    for share in shares:
        swing = np.repeat(rng.standard_normal((2 * days, zones)), SLOTS // 2, axis=0)  # for half a day each
        silent = np.clip(share * (1 + 0.5 * swing), 0, 0.6)  # [interval, zone]
        order = np.repeat(rng.random((days, size.homes)), SLOTS, axis=0)  # who is silent first, new each day
        reported = [order >= silent[:, [zone]] for zone in range(zones)]
        usable = np.stack([each.mean(axis=1) >= QUORUM for each in reported], axis=1)
        releases = plan.release(size.sums_wh(0, plan.bound_wh, reported), usable, size.world.seed)
        name = f"{share:.0%} silent ({usable.mean():.0%} of intervals measured)"
        found[f"{name}, product counts 0"] = size.errors(plan(public, releases), demand, demand)
        releases = regression.release(size.sums_wh(0, regression.bound_wh, reported), usable, size.world.seed)
        missing = size.homes - np.stack([each.sum(axis=1) for each in reported], axis=1)
        found[f"{name}, {CORRECTED}"] = size.errors(
            regression.predict(public, releases, missing).demand_wh, demand, demand
        )
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
    """Check that no way uses what is known later, and that the product's functions agree with a direct loop."""
    public, demand = size.public, size.sums_wh(0, MAX_WH)
    plan = ProductPlan(public, forecast_with_product(public, Fraction(1), 1), pooled=True)
    releases = plan.release(size.sums_wh(0, plan.bound_wh), np.ones(demand.shape, np.bool_), size.world.seed)
    noise = releases.noisy_wh - size.sums_wh(0, plan.bound_wh)
    sd_ratio = float(noise.std()) / releases.noise_sd_wh
    goals.print_figure(f"{name}: sd of the noise drawn / planned", sd_ratio, at_least=0.97, at_most=1.03)
    ways: list[Predictor] = [*PUBLIC_WAYS.values(), predict_echo, plan, RegressionPlan(public)]
    leak = max(find_leak(way, public, releases, len(demand) // 2) for way in ways)
    goals.print_figure(f"{name}: what later numbers change", leak, "Wh", at_most=0)
    usable = np.random.default_rng(1).random(demand.shape) > 0.1
    few = Releases(releases.noisy_wh[: 5 * SLOTS], usable[: 5 * SLOTS], plan.bound_wh, 0, releases.noise_sd_wh)
    direct, stepped = predict_directly(plan.zones, public.year.first_interval, few), plan(public, few)
    apart = float(np.abs(direct / stepped - 1).max())
    goals.print_figure(f"{name}: product's steps / a direct loop, apart", apart, at_most=1e-5)


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
        for title, judge, of_homes in (
            ("demand, error in % of mean", judge_demand, plain),
            ("12 % PV: net load, % of mean import", judge_net_load, with_pv),
        ):
            judged = {homes: judge(size, 1 if quick else 3) for homes, size in of_homes.items()}
            lines += table_lines(f"{told}: {title}", judged)
        missing = judge_missing(plain[max(sizes)], (0.10,) if quick else MISSING)
        lines += table_lines(f"{told}: demand, silent meters", {max(sizes): missing})
    print("\n".join(lines))
    return goals.exit_status()


if __name__ == "__main__":
    sys.exit(main())
