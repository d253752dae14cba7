"""What an evaluation found, as JSON, as sentences and as a table for a terminal."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from murmurate import __version__
from murmurate.lab.evaluate.comparison import SizeComparison, WayResult
from murmurate.lab.evaluate.evaluation import LESS_USE, STRONG_ANSWER, WRONG_LEVEL, Evaluation, SizeStress
from murmurate.lab.evaluate.zone_pricing import Way

_LARGE_SHARE = 0.9
_CLEARLY = 0.95  # an error is clearly smaller if it is at most this much of another


def results_document(evaluation: Evaluation, source: dict[str, Any]) -> str:
    """Return `results.json`. `source` says what was priced."""
    document = {
        "murmurate": __version__,
        "source": source,
        "supply": evaluation.setting.supply.value,
        "elasticity": evaluation.setting.elasticity,
        "lead": evaluation.setting.lead,
        "counted_days": evaluation.counted_days,
        "forecast_error": evaluation.forecast_error,
        "promises": [
            {"promise": each.promise, "noise_sd_over_bound": each.law.sd, "epsilon": each.epsilon}
            for each in evaluation.promises
        ],
        "sizes": [_size_document(evaluation, homes) for homes in evaluation.sizes],
    }
    return json.dumps(document, indent=1) + "\n"


def _size_document(evaluation: Evaluation, homes: int) -> dict[str, Any]:
    of_size = evaluation.comparisons[homes]
    plain = [_way_document(result) for way, result in of_size[0].results.items() if not way.uses_noise]
    private = [
        {
            "promise": noise.promise,
            "bound_wh": compared.bound_wh,
            "share_of_what_exact_data_add": compared.value_of_data,
            "ways": [_way_document(result) for way, result in compared.results.items() if way.uses_noise],
        }
        for noise, compared in zip(evaluation.promises, of_size, strict=True)
    ]
    stress = evaluation.stress[homes]
    return {
        "homes": homes,
        "zones": evaluation.zones[homes],
        "ways": plain,
        "promises": private,
        "stress": {
            "forecast_factor": WRONG_LEVEL,
            "wrong_forecast_error_ratio": stress.wrong_forecast.error_ratio,
            "use_factor": LESS_USE,
            "less_use_from_day": evaluation.change_day,
            "less_use_error_ratio": stress.less_use.error_ratio,
            "elasticity": STRONG_ANSWER,
            "strong_answer_loss_ratio": stress.strong_answer.loss_ratio,
            "strong_answer_step_ratio": stress.strong_answer.step_ratio,
        },
    }


def _way_document(result: WayResult) -> dict[str, Any]:
    return asdict(result) | {"way": result.way.value, "error_se": None if result.is_single else result.error_se}


def homes_sentences(evaluation: Evaluation) -> list[str]:
    """Return sentences on how many homes are needed, with the first promise."""
    first = {homes: of_size[0] for homes, of_size in evaluation.comparisons.items()}
    return [
        _homes_sentence(first, evaluation.promises[0].short),
        _from_size(
            first,
            Way.EXACT_ECHO,
            "an echo of exact demand, which has no noise at all but prices the demand of half an hour ago",
        ),
        _from_size(first, Way.REGIONAL_LOAD, "a forecast with public regional load, which reads no meter of the zone"),
    ]


def _from_size(first: dict[int, SizeComparison], way: Way, words: str) -> str:
    """From which size on a private prediction is better than another way."""
    nearer = 0
    for homes, one in first.items():
        better = _error(one, Way.PRIVATE) < _CLEARLY * _error(one, way)
        nearer = (nearer or homes) if better else 0
    if not nearer:
        return f"At the largest of these sizes it is not clearly nearer to the demand than {words}."
    errors = f"{100 * _error(first[nearer], Way.PRIVATE):.1f} % off instead of {100 * _error(first[nearer], way):.1f} %"
    return f"From {nearer:,} homes on it is clearly nearer to the demand than {words}: {errors} there."


def _homes_sentence(first: dict[int, SizeComparison], promise: str) -> str:
    enough = [homes for homes, one in first.items() if one.value_of_data >= _LARGE_SHARE]
    begin = f"With the promise “{promise}”, a private prediction keeps"
    if enough:
        homes = min(enough)
        return (
            f"{begin} {100 * first[homes].value_of_data:.0f} % of what exact data add to a forecast at {homes:,} homes."
        )
    homes = max(first)
    return (
        f"{begin} at most {100 * first[homes].value_of_data:.0f} % of what exact data add to a forecast, "
        f"at {homes:,} homes: join zones, or promise less."
    )


def promise_sentences(evaluation: Evaluation) -> list[str]:
    """Return what the strongest promise costs beside the weakest, if there are several."""
    if len(evaluation.promises) == 1:
        return []
    order = sorted(range(len(evaluation.promises)), key=lambda number: -evaluation.promises[number].law.sd)
    homes = evaluation.sizes[len(evaluation.sizes) // 2]
    strong, weak = (evaluation.comparisons[homes][number].results[Way.PRIVATE] for number in (order[0], order[-1]))
    names = [evaluation.promises[number].short for number in (order[0], order[-1])]
    cost = (
        f"At {homes:,} homes, “{names[0]}” instead of “{names[1]}” costs {100 * (strong.error - weak.error):.1f} "
        f"points of error ({100 * strong.error:.1f} % instead of {100 * weak.error:.1f} %) and "
        f"{strong.loss - weak.loss:.3f} EUR per household and year."
    )
    return [cost]


def _error(compared: SizeComparison, way: Way) -> float:
    return compared.results[way].error


def stress_sentences(evaluation: Evaluation) -> list[str]:
    """Return sentences on a wrong forecast, homes that change, and demand that answers strongly."""

    def listed(ratio: str, condition: str) -> str:
        of_size = ((homes, getattr(getattr(stress, condition), ratio)) for homes, stress in evaluation.stress.items())
        return ", ".join(f"{value:.2f} ({homes:,} homes)" for homes, value in of_size)

    low = "Forecast 10 % too low: error of the private prediction over the forecast's: "
    less = f"Everybody uses 15 % less from day {evaluation.change_day} on: the same, from then on: "
    strong = "Demand answers strongly (convex curve, elasticity 0.3): loss over that of an echo of exact demand: "
    return [
        f"{low}{listed('error_ratio', 'wrong_forecast')}.",
        f"{less}{listed('error_ratio', 'less_use')}.",
        f"{strong}{listed('loss_ratio', 'strong_answer')}; price steps: {listed('step_ratio', 'strong_answer')}.",
    ]


def summary_table(evaluation: Evaluation) -> Table:
    """Return the errors of every way, one row for each size, within 100 columns."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    names = ("homes", "forecast", "+ region", "noisy echo", "private", "exact echo", "exact", "of exact data", "loss")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for homes, of_size in evaluation.comparisons.items():
        one = of_size[0]
        ways = (Way.FORECAST, Way.REGIONAL_LOAD, Way.NOISY_ECHO, Way.PRIVATE, Way.EXACT_ECHO, Way.EXACT)
        errors = [f"{100 * _error(one, way):.1f} %" for way in ways]
        table.add_row(f"{homes:,}", *errors, f"{100 * one.value_of_data:.0f} %", f"{one.results[Way.PRIVATE].loss:.3f}")
    return table


def stress_cells(stress: SizeStress) -> list[str]:
    """Return what a row of the page's table on worse conditions shows."""
    return [
        f"{100 * stress.wrong_forecast.other.error:.1f} %",
        f"{100 * stress.wrong_forecast.private.error:.1f} %",
        f"{stress.wrong_forecast.error_ratio:.2f}",
        f"{100 * stress.less_use.other.error:.1f} %",
        f"{100 * stress.less_use.private.error:.1f} %",
        f"{stress.less_use.error_ratio:.2f}",
        f"{stress.strong_answer.other.loss:.2f}",
        f"{stress.strong_answer.private.loss:.2f}",
        f"{stress.strong_answer.loss_ratio:.2f}",
        f"{stress.strong_answer.step_ratio:.2f}",
    ]
