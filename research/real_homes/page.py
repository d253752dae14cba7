"""The report on real homes: a page that needs nothing else, its numbers, and what the terminal shows."""

from __future__ import annotations

from murmurate.lab.audit.attack import Estimate
from murmurate.lab.report import Report
from research.real_homes.figures import draw_attack_figure_of_homes, draw_day_figure, draw_error_figure
from research.real_homes.homes_report import HomesReport, report_numbers
from research.real_homes.page_text import (
    attack_sentences,
    day_sentences,
    error_sentences,
    format_auc,
    format_signed,
    limit_sentences,
    promise_sentences,
)
from research.real_homes.zone_errors import HomesWay

_ATTACK_COLUMNS = (
    "homes in the zone",
    "targets",
    "clock alone",
    "exact demand, above clock",
    "noisy releases, above clock",
    "same hour, exact demand",
    "same hour, noisy releases",
)


def make_homes_report(found: HomesReport) -> Report:
    """Return the report."""
    homes = sum(len(zone.data.households) for zone in found.zones)
    measured = sum(len(zone.data.households) for zone in found.zones if zone.data.measured)
    licences = ", ".join(dict.fromkeys(zone.data.licence for zone in found.zones))
    report = Report("Private prices on real homes", report_numbers(found), "homes.json")
    lead = f"{measured} measured and {homes - measured} modelled homes. Data: {licences}."
    report.add_text(lead, brief=False, muted=True)
    for sentence in promise_sentences(found):
        report.add_text(sentence, brief=False)
    report.add_heading("How wrong is the demand that a price is made for?")
    report.add_list(error_sentences(found.zones))
    report.add_figure("errors", draw_error_figure(found.zones), "Error of each way to price each zone")
    names = ("price made from", *(f"{zone.data.name}, {len(zone.data.households)} homes" for zone in found.zones))
    rows = [[way.value, *(_error_cell(zone.ways[way].error) for zone in found.zones)] for way in HomesWay]
    kinds = ["private" if way is HomesWay.PRIVATE else "" for way in HomesWay]
    report.add_table(names, rows, kinds=kinds, brief=False)
    explained = "Root mean square error, % of the mean demand, with its 95 % interval over weeks."
    report.add_text(explained, brief=False, muted=True)
    report.add_heading("Can prices tell who is home?")
    if found.attack is None:
        unknown = "The data do not say who was home often enough to attack, so this was not measured."
        report.add_text(unknown, brief=False)
    else:
        report.add_list(attack_sentences(found.attack))
        figure = draw_attack_figure_of_homes(found.attack)
        report.add_figure("attack", figure, "Success of the attack by size of the zone")
        rows = []
        for zone in found.attack.zones:
            gains = [format_signed(each.above_clock) for each in (zone.exact, zone.noisy)]
            same_hour = [format_auc(each.same_time_auc) for each in (zone.exact, zone.noisy)]
            rows.append([f"{zone.homes}", f"{zone.targets}", format_auc(zone.clock.auc), *gains, *same_hour])
        report.add_table(_ATTACK_COLUMNS, rows, brief=False)
        explained = "Area under the ROC curve, mean over households with its 95 % interval."
        report.add_text(explained, brief=False, muted=True)
    report.add_heading("What the noise hides")
    for sentence in day_sentences(found):
        report.add_text(sentence, brief=False)
    report.add_figure("day", draw_day_figure(found.day), "One day of a household, its zone and its releases")
    report.add_heading("What this does not show")
    report.add_list(limit_sentences(found), brief=False)
    return report


def _error_cell(error: Estimate) -> str:
    return f"{100 * error.mean:.1f} % ({100 * error.low:.1f} to {100 * error.high:.1f})"
