"""The noised demand of a zone, from the rows of its log: what its price did to it is taken out, as the prediction does.

    demand = noisy_wh/factor + D - E

`factor` is what the price that was paid in the interval did to the demand, D the plan's forecast of the demand, and E
that of the sum of clipped readings. Everything here is public: it is computed from the log and its plans, and costs no
privacy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from murmurate.errors import ModelError
from murmurate.planning.privacy_cost import NoiseSchedule
from murmurate.planning.release_terms import ReleaseTerms, parse_plan
from murmurate.prediction.calendar import locate_intervals
from murmurate.prediction.forecast import Weather
from murmurate.prediction.forecast_sources import NoisedHistory
from murmurate.prediction.public_inputs import NO_INPUTS, from_extensions
from murmurate.prediction.zone_prediction import ZonePrediction
from murmurate.public_log.predicted_rows import NO_PRICE, carry_over
from murmurate.public_log.tile import RowKind
from murmurate.public_log.zone_line import LoggedRelease
from murmurate.time_zones import utc_offset_min
from murmurate.units import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class DemandTerms:
    """What a plan says about the demand of a zone. It must have been proven."""

    terms: ReleaseTerms
    households: int
    time_zone: str

    @classmethod
    def from_json(cls, text: str) -> DemandTerms:
        """Read a `plan.json`. Raises PrivacyError if its digest does not match."""
        terms, (document, _) = ReleaseTerms.from_json(text), parse_plan(text)
        households = sum(int(kind["count"]) for kind in document["households"])
        return cls(terms, households, str(document["clock"]["time_zone"]))

    @property
    def prediction(self) -> ZonePrediction | None:
        return self.terms.prediction

    @property
    def noise_variance(self) -> FloatArray:
        """The variance of the noise [Wh^2, interval of the UTC day]."""
        terms = self.terms
        return NoiseSchedule.from_scales(terms.distribution, terms.scale_wh, terms.core_wh).variance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoggedDemand:
    """The noised demand that a log shows, from the first interval with one to the last."""

    first: int  # interval
    slots_per_day: int
    decided: int  # number of intervals in the log
    measured: int  # of them with a noised demand
    history: NoisedHistory
    last: DemandTerms  # of the last measured interval


def extract_demand(releases: Sequence[LoggedRelease], plans: Mapping[str, DemandTerms]) -> LoggedDemand:
    """Return the noised demand of a zone. `releases` have ascending intervals; the log must have been verified."""
    kinds = (each.row["kind"][0] if "noisy_wh" in (each.row.dtype.names or ()) else 0 for each in releases)
    measured = np.array([kind == RowKind.MEASURED for kind in kinds], np.bool_)
    if not measured.any():
        needs = "needs intervals that were measured while prices were predicted ([forecast] file = .. in the zone file)"
        allowed = f"{needs}; make a forecast from --history or --h25 until then"
        raise ModelError("log", "without a noised demand", allowed)
    interval = np.array([each.header.interval for each in releases], np.int64)
    known = np.flatnonzero(measured)
    first, last = int(interval[known[0]]), plans[releases[known[-1]].plan]
    count = int(interval[known[-1]]) - first + 1
    demand, variance = np.full(count, np.nan), np.zeros(count)
    paid = _paid_prices(releases)
    plan_of_release = np.array([each.plan for each in releases])
    for digest in dict.fromkeys(plan_of_release[measured].tolist()):
        chosen = measured & (plan_of_release == digest)
        at = interval[chosen]
        noisy_wh = np.array([releases[n].row["noisy_wh"][0] for n in np.flatnonzero(chosen).tolist()], np.float64)
        weather = _weather(releases, at, plans[digest])
        undone = _undo_price_and_clipping(noisy_wh, at, paid[chosen], weather, plans[digest], last)
        demand[at - first], variance[at - first] = undone
    history = NoisedHistory(demand_wh=demand, noise_variance=variance, households=last.households)
    return LoggedDemand(
        first=first,
        slots_per_day=len(last.terms.scale_wh),
        decided=len(releases),
        measured=int(measured.sum()),
        history=history,
        last=last,
    )


def _paid_prices(releases: Sequence[LoggedRelease]) -> IntArray:
    """The price that was paid in each interval, as the prediction takes it from the row before; NO_PRICE: none."""
    paid = np.full(len(releases), NO_PRICE, np.int64)
    for at in range(1, len(releases)):
        before, now = releases[at - 1].header, releases[at].header
        if now.lead > 0 and (before.shard, before.interval + 1) == (now.shard, now.interval):
            paid[at] = carry_over(releases[at - 1].row, 1, now.lead).due[0, 0]
    return paid


def _weather(releases: Sequence[LoggedRelease], interval: IntArray, plan: DemandTerms) -> Weather:
    """The weather of each interval that a tile states, by the series of a plan; NaN where none does."""
    found = np.full((2, len(interval)), np.nan)
    model = None if plan.prediction is None else plan.prediction.model
    if model is not None and model.series.names:
        known = {each.header.interval: from_extensions(each.header.extensions) for each in releases}
        for at, number in enumerate(interval.tolist()):
            stated = model.weather(known.get(number, NO_INPUTS), "now")
            found[:, at] = [np.nan if column is None else column[0] for column in stated]
    return Weather(*found)


def _undo_price_and_clipping(
    noisy_wh: FloatArray,
    interval: IntArray,
    paid: IntArray,
    weather: Weather,
    plan: DemandTerms,
    last: DemandTerms,
) -> tuple[FloatArray, FloatArray]:
    """Return the demand of one household at the reference price of the last plan, and the variance of its noise."""
    variance = plan.noise_variance[interval % len(plan.terms.scale_wh)]
    if plan.prediction is None:
        return noisy_wh / plan.households, variance / plan.households**2
    answered = plan.prediction.price_response.factor(paid.astype(np.float64))
    divisor = plan.households * np.where(paid == NO_PRICE, 1.0, answered)
    demand_wh, variance = noisy_wh / divisor, variance / divisor**2
    model, level = plan.prediction.model, plan.prediction.scale / plan.households
    seconds = (interval * plan.terms.interval_s).tolist()
    offsets = np.array([utc_offset_min(model.public.time_zone, at) for at in seconds], np.int64)
    when = locate_intervals(interval, model.slots_per_day, offsets, model.public.holidays)
    cut_wh = model.public.demand.demand_wh(when, weather) - model.clipped.demand_wh(when, weather)
    demand_wh = demand_wh + cut_wh * level
    if last.prediction is None or plan is last:
        return demand_wh, variance
    price = plan.prediction.price_response.reference_ticks * plan.terms.curve.tick / last.terms.curve.tick
    factor = float(last.prediction.price_response.factor(np.array([float(price)]))[0])
    return demand_wh / factor, variance / factor**2
