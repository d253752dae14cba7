"""The sentences of the page on real homes, flattering or not. They follow from the numbers."""

from __future__ import annotations

from murmurate.lab.audit.attack import Estimate
from murmurate.units import WH_PER_KWH
from research.real_homes.homes_report import HomesReport
from research.real_homes.occupancy_attack import MIN_STATE_INTERVALS, OccupancyAttack
from research.real_homes.zone_errors import LEAD, NOISE_DRAWS, HomesWay, ZoneErrors


def promise_sentences(report: HomesReport) -> list[str]:
    """Return what is promised, and how prices were made and judged."""
    minutes = report.zones[0].data.interval_s // 60
    with_weather = sum(zone.data.temperature_c is not None for zone in report.zones)
    promise = (
        f"Promise: {'; '.join(report.noise.promises)}, intervals of {minutes} minutes: noise with "
        f"a standard deviation of {report.noise.sd_wh(1000) / WH_PER_KWH:.1f} times the bound of a household. The "
        "promise about a moment is for the habits of the example zone; the one about 24 h is for any."
    )
    method = (
        "All homes of a place are one zone. In the first half of the data their readings are used as they are, as in "
        "a trial to which they agreed: forecast, bounds and gains come from it. The second half is priced, each "
        f"interval from what was known {LEAD} intervals before. After four weeks, every week counts, for every way. "
        f"Noise is drawn {NOISE_DRAWS} times. Forecasts use the true temperature where that made them "
        f"better in the trial: in {with_weather} of {len(report.zones)} places."
    )
    return [promise, method]


def error_sentences(zones: tuple[ZoneErrors, ...]) -> list[str]:
    """Return the verdict on each zone, and on the releases themselves."""
    sentences = [_zone_verdict(zone) for zone in zones]
    if all(zone.ways[HomesWay.NOISY_ECHO].against_forecast.low > 0 for zone in zones):
        sentences.append(
            "A price from the last noisy release alone is useless here: the noise hides one home in a sum of so few. "
            "What releases can add to a forecast is what they teach over weeks: that the level has changed since the "
            "trial."
        )
    return sentences


def _zone_verdict(zone: ZoneErrors) -> str:
    private, forecast, exact = (zone.ways[way] for way in (HomesWay.PRIVATE, HomesWay.FORECAST, HomesWay.EXACT))
    return (
        f"{zone.data.name}, {len(zone.data.households)} {'measured' if zone.data.measured else 'modelled'} homes: the "
        f"private prediction is {100 * private.error.mean:.1f} % off, {_compare(private.against_forecast)} the public "
        f"forecast, which is {100 * forecast.error.mean:.1f} % off. From exact releases the prediction would be "
        f"{_compare(exact.against_forecast)} the forecast. The noise is {zone.noise_sd_wh / WH_PER_KWH:.1f} kWh, the "
        f"mean demand {zone.mean_wh / WH_PER_KWH:.1f} kWh."
    )


def _compare(change: Estimate) -> str:
    if change.low <= 0 <= change.high:
        return "not measurably different from"
    return f"{100 * abs(change.mean):.0f} % {'better' if change.mean < 0 else 'worse'} than"


def attack_sentences(attack: OccupancyAttack) -> list[str]:
    """Return how far the attack got with exact demand and with noisy releases, beside the clock alone."""
    one, largest = attack.zones[0], attack.zones[-1]
    clock = (
        f"{attack.targets} homes were attacked, drawn from {attack.eligible} of {attack.households}. The others are "
        f"almost always occupied: fewer than {MIN_STATE_INTERVALS} intervals away in a half. The targets are occupied "
        f"{100 * attack.home_share:.0f} % of the time. An attacker who knows their habits and a clock, "
        f"and sees no release, has an AUC of {format_auc(one.clock.auc)}."
    )
    strong = (
        f"One who also knows all other readings gets {format_auc(one.exact.auc)} from exact demand, and "
        f"{format_auc(one.noisy.auc)} from noisy releases: {_gain(one.noisy.above_clock)}. At the same hour of two "
        f"days, where the clock is of no use, it is {format_auc(one.exact.same_time_auc)} and "
        f"{format_auc(one.noisy.same_time_auc)}."
    )
    sentences = [clock, strong]
    hidden = next((zone for zone in attack.zones if zone.exact.above_clock.low <= 0), None)
    if hidden is not None:
        unflattering = (
            "This too is true: an attacker who does not know the other readings gains nothing over the clock from "
            f"exact demand of zones of {hidden.homes} homes ({format_signed(hidden.exact.above_clock)}). Only the "
            f"comparison at the same hour still shows something there: {format_auc(hidden.exact.same_time_auc)}. The "
            "other homes hide the target without noise, as long as the attacker does not know them."
        )
        sentences.append(unflattering)
    sentences.append(
        f"In zones of {largest.homes} homes, at the same hour: {format_auc(largest.exact.same_time_auc)} from exact "
        f"demand, {format_auc(largest.noisy.same_time_auc)} from noisy releases."
    )
    return sentences


def _gain(found: Estimate) -> str:
    return "not more than the clock" if found.low <= 0 else f"{found.mean:.3f} more than the clock"


def day_sentences(report: HomesReport) -> list[str]:
    """Return what the figure of a day shows."""
    day = report.day
    times = day.zone.noise_sd_wh / max(1.0, float(day.reading_wh.clip(max=day.zone.bound_wh).max()))
    shown = (
        f"The noise of {day.zone.noise_sd_wh / WH_PER_KWH:.1f} kWh is {times:.0f} times the largest reading of this "
        "household on this day, clipped at its bound. One release says almost nothing about one interval, and the "
        "prediction follows the forecast closely."
    )
    chosen = "Of a few weeks, the household and day whose readings show an absence best were chosen."
    if day.home is None:
        return [shown]
    return [f"{shown} {chosen}"]


def limit_sentences(report: HomesReport) -> list[str]:
    """Return what the page does not show."""
    habits = (
        "The attacker learns no habit here: it was told them. Prices teach habits over months, and the promise about "
        "a moment does not cover that."
    )
    sentences = [
        "One draw of homes and one half year: the intervals are over weeks and households, not over places or years.",
        "Prices do not change what these homes use. No regional load is known.",
        habits,
    ]
    if any(not zone.data.measured and zone.data.occupied is not None for zone in report.zones):
        sentences.append(
            "Homes with known occupancy come from a model of buildings and of how people spend their time. Real homes "
            "may show it more, or less."
        )
    return sentences


def format_auc(found: Estimate) -> str:
    return f"{found.mean:.3f} ± {found.half_width:.3f}"


def format_signed(found: Estimate) -> str:
    return f"{found.mean:+.4f} ± {found.half_width:.4f}".replace("-", "−")
