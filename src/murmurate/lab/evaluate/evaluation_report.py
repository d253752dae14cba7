"""The report of `murmurate evaluate`: how many homes a zone needs, and what a stronger promise costs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from murmurate import __version__
from murmurate.lab.evaluate.evaluation import (
    LESS_USE,
    SHIFTED_SHARE,
    STRONG_ANSWER,
    WRONG_LEVEL,
    Evaluation,
    Stress,
    WayResult,
)
from murmurate.lab.evaluate.zone_pricing import Way
from murmurate.lab.plot_style import (
    MUTED_COLOR,
    NAIVE_COLOR,
    PRIVATE_COLOR,
    TEXT_COLOR,
    set_axes_title,
    style_axes,
)
from murmurate.lab.report import Report

_LARGE_SHARE = 0.9
_CLEARLY = 0.95  # an error is clearly smaller if it is at most this much of another
_PROMISE_COLORS = (PRIVATE_COLOR, "#4aa3d8", "#9acbea")  # from the strongest promise to the weakest
_SIZE_COLORS = ("#a3b8c6", "#7fb4d6", "#3b97cf", PRIVATE_COLOR, TEXT_COLOR)
_MARKERS = ("o", "s", "^", "D", "v")
_MACHINES_A_YEAR = 12 * 110  # dollars at list prices, for up to a million meters: docs/explanation/scale.md
_RUNNING_COSTS = (
    "Running: machines cost about 110 dollars a month at list prices, for one zone or for a million meters; a dollar "
    "counts as a euro. The column is for a zone that pays them alone. People, meters and bills are not in it."
)
_SUMMARY_WAYS = {
    "forecast": Way.FORECAST,
    "+ region": Way.REGIONAL_LOAD,
    "noisy echo": Way.NOISY_ECHO,
    "private": Way.PRIVATE,
    "exact echo": Way.EXACT_ECHO,
    "exact": Way.EXACT,
}
_OWN_NAMES = {  # of ways that read meters where the readings are those of a user
    Way.FORECAST: "forecast from exact sums of the file",
    Way.REGIONAL_LOAD: "forecast from exact sums and load of the file",
}
_NOT_SHOWN_SIMULATED = (
    "Real meters. Homes, weather and shocks are simulated. What is not known of real regions was set so that a "
    "forecast of the year before is about 8 % off for large zones. Run it with --readings on your own data.\n"
    "Solar feed-in, use that shifts to another interval, and homes that answer in order to mislead.\n"
    "Other constants of the prediction. How large corrections are and how fast they fade was set beforehand, on other "
    "simulated homes.\n"
    "Regions of a million homes. Zones as large as the region are its sums, each with separate shocks."
)
_NOT_SHOWN_READINGS = (
    "Neighbourhoods. Zones are groups of households drawn at random; real zones share more: weather, heating, habits.\n"
    "A price that reads no meter. The forecast under every price here, the private one too, is fitted to exact sums of "
    "the file, the level of a zone is that of its first four weeks, and the load of the file contains the zone.\n"
    "A forecast of the weather. Where weather is given, it is known when a price is made.\n"
    "Missing readings as they were. What was filled in is easier to predict than what was used.\n"
    "Use that shifts to another interval, and homes that answer in order to mislead.\n"
    "A year. Forecasts know only the weeks before."
)
_NOT_SHOWN = (
    "A zone that sells. What a zone feeds in does not answer to prices, and prices are at least 0.1 ct/kWh.\n"
    "Exact noise. It is drawn in floating point here, from the law that the planner found. Published noise is exact.\n"
    "All of the money. Only the answer within an interval counts, at the stated elasticity: no capacity, no networks, "
    "no shifting.\n"
    "Other seasons. Standard errors are over zones of one season; seasons differ more."
)


def make_evaluation_report(evaluation: Evaluation, source: str, facts: dict[str, Any]) -> Report:
    """Return the report. `source` is a sentence on what was priced, `facts` the same for scripts."""
    setting, promises = evaluation.setting, evaluation.promises
    report = Report("What a private price is worth", results_document(evaluation, facts))
    priced = (
        f"Prices are made two quarter hours ahead, with a {setting.supply.value} supply curve; demand answers with an "
        f"elasticity of {setting.elasticity:g}. Predictions, private or exact, know the forecast and the "
        f"{'load of the file' if evaluation.own_readings else 'regional load'} of the interval before as well. "
        f"{evaluation.counted_days} days count, after the first weeks of learning."
    )
    report.add_text(f"{source} {priced}")
    report.add_heading("How many homes do I need?")
    report.add_list(homes_sentences(evaluation))
    unit = (
        "% of the mean import, which is the demand where it is above zero" if evaluation.feeds_in else "% of its mean"
    )
    report.add_text(f"Error of the demand that is priced, in {unit}; promise: {promises[0].promise}")
    errors, losses, summary = [], [], list(_SUMMARY_WAYS)
    if evaluation.own_readings:
        summary[:2] = ["file forecast", "+ file load"]
    for homes, of_size in evaluation.comparisons.items():
        results = [of_size[0].results[way] for way in _SUMMARY_WAYS.values()]
        share = f"{100 * of_size[0].value_of_data:.0f} %"
        errors.append([f"{homes:,}", *(f"{100 * result.error:.1f} %" for result in results), share])
        losses.append([f"{homes:,}", *(f"{result.loss:.3f}" for result in results), f"{_MACHINES_A_YEAR / homes:.3f}"])
    report.add_table(["homes", *summary, "of exact data"], errors)
    report.add_text("The same in money: what each price loses to the best price, EUR per household and year")
    report.add_table(["homes", *summary, "running"], losses)
    report.add_list([money_sentence(evaluation), _RUNNING_COSTS])
    described = "Error and share of what exact data add, against the number of homes in a zone"
    report.add_figure("homes", draw_homes_figure(evaluation), described)
    report.add_heading("What does a stronger promise cost me?")
    report.add_list(promise_sentences(evaluation))
    described = "Error and welfare loss for each promise and size, from no data to exact data"
    report.add_figure("promise", draw_promise_figure(evaluation), described)
    explained = (
        "The planner finds the least noise for each promise, as a multiple of the bound at which readings are clipped. "
        "A low bound needs little noise but hides peaks; the bound is the one with the least predicted error, where "
        "what is cut off counts as far as releases are believed."
    )
    if evaluation.feeds_in:
        explained += (
            " Homes feed in, so readings count from minus the bound to the bound, and the noise is that of twice the "
            "bound."
        )
    report.add_text(explained, brief=False, muted=True)
    names = ("promise", "noise, in bounds", *(f"bound at {homes:,} homes" for homes in evaluation.sizes))
    rows = []
    for number, noise in enumerate(promises):
        bounds = [f"{of_size[number].bound_wh:,} Wh" for of_size in evaluation.comparisons.values()]
        rows.append([noise.promise, f"{noise.law.sd:.1f}", *bounds])
    report.add_table(names, rows, brief=False)
    _add_way_tables(report, evaluation)
    _add_stress(report, evaluation)
    report.add_heading("What this does not show")
    is_simulated = facts.get("kind") == "simulated"
    not_shown = (_NOT_SHOWN_SIMULATED if is_simulated else _NOT_SHOWN_READINGS) + "\n" + _NOT_SHOWN
    report.add_list(not_shown.split("\n"), brief=False)
    return report


def _add_way_tables(report: Report, evaluation: Evaluation) -> None:
    """Add a table of every way for each size."""
    report.add_heading("Every way, at every size")
    explained = (
        "Error: rms of the demand that a price was made for, relative to the mean import, with its standard error over "
        "zones. Loss: welfare lost to the best price, per household and year. Step: standard deviation of the change "
        "of price from one quarter hour to the next. Bill: what a mean household pays for energy in a year."
    )
    report.add_text(explained, brief=False, muted=True)
    names = ("price made from", "error", "±", "loss, EUR", "step, ct/kWh", "bill, EUR")
    shown = evaluation.main_size
    for homes, of_size in evaluation.comparisons.items():
        rows, kinds = [], []
        for way in Way:
            named = [(name_way(evaluation, way), of_size[0])]
            if way.uses_noise:
                both = zip(evaluation.promises, of_size, strict=True)
                named = [(f"{way.value}: {noise.short}", compared) for noise, compared in both]
            for name, compared in named:
                result = compared.results[way]
                error_se = "" if result.is_single else f"{100 * result.error_se:.2f}"
                money = [f"{result.loss:.3f}", f"{100 * result.price_step_sd:.2f}", f"{result.bill:.2f}"]
                rows.append([name, f"{100 * result.error:.2f} %", error_se, *money])
                kinds.append("private" if way is Way.PRIVATE else "")
        zones = evaluation.zones[homes]
        about = f"{homes:,} homes ({zones} {'zone' if zones == 1 else 'zones'})"
        report.add_table(names, rows, kinds=kinds, brief=False, summary=about, is_open=homes == shown)


def _add_stress(report: Report, evaluation: Evaluation) -> None:
    """Add what happens under worse conditions."""
    report.add_heading("When things are not as usual")
    explained = (
        "With the first promise. The level of a zone is taken 10 % too low all the time; homes of a zone use 15 % less "
        f"from day {evaluation.change_day} of the season on (errors from that day on). Regional load shows neither. "
        "Demand that answers strongly to prices (elasticity 0.3, convex curve), where an echo of demand makes prices "
        "swing. A ratio below 1 is in favour of the private prediction."
    )
    report.add_text(explained, brief=False)
    report.add_list(stress_sentences(evaluation))


def results_document(evaluation: Evaluation, source: dict[str, Any]) -> dict[str, Any]:
    """Return `results.json`. `source` says what was priced."""
    sizes = []
    for homes, of_size in evaluation.comparisons.items():
        stress = evaluation.stress[homes]
        private = [
            {
                "promise": noise.promise,
                "bound_wh": compared.bound_wh,
                "export_bound_wh": compared.bound_wh if evaluation.feeds_in else 0,
                "share_of_what_exact_data_add": compared.value_of_data,
                "ways": [_way_document(evaluation, each) for each in compared.results.values() if each.way.uses_noise],
            }
            for noise, compared in zip(evaluation.promises, of_size, strict=True)
        ]
        size = {
            "homes": homes,
            "zones": evaluation.zones[homes],
            "running_cost": _MACHINES_A_YEAR / homes,
            "ways": [
                _way_document(evaluation, each) for each in of_size[0].results.values() if not each.way.uses_noise
            ],
            "promises": private,
            "stress": {
                "level_factor": WRONG_LEVEL,
                "wrong_level_error_ratio": stress[Stress.WRONG_LEVEL].error_ratio,
                "use_factor": LESS_USE,
                "less_use_from_day": evaluation.change_day,
                "less_use_error_ratio": stress[Stress.LESS_USE].error_ratio,
                "elasticity": STRONG_ANSWER,
                "strong_answer_loss_ratio": stress[Stress.STRONG_ANSWER].loss_ratio,
                "strong_answer_step_ratio": stress[Stress.STRONG_ANSWER].step_ratio,
                "shifted_share": SHIFTED_SHARE,
                "shifted_loss_ratio": stress[Stress.SHIFTED].loss_ratio,
                "shifted_step_ratio": stress[Stress.SHIFTED].step_ratio,
            },
        }
        sizes.append(size)
    return {
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
        "sizes": sizes,
    }


def _way_document(evaluation: Evaluation, result: WayResult) -> dict[str, Any]:
    error_se = None if result.is_single else result.error_se
    return asdict(result) | {"way": name_way(evaluation, result.way), "error_se": error_se}


def name_way(evaluation: Evaluation, way: Way) -> str:
    """Return what a price is made from: with readings of a user, even a forecast is made from meters."""
    return _OWN_NAMES.get(way, way.value) if evaluation.own_readings else way.value


def homes_sentences(evaluation: Evaluation) -> list[str]:
    """Return sentences on how many homes are needed, with the first promise."""
    first = {homes: of_size[0] for homes, of_size in evaluation.comparisons.items()}
    kept = f"With the promise “{evaluation.promises[0].short}”, a private prediction keeps"
    enough = [homes for homes, one in first.items() if one.value_of_data >= _LARGE_SHARE]
    homes = min(enough, default=max(first))
    share = f"{100 * max(first[homes].value_of_data, 0.0):.0f} % of what exact data add to forecast and regional load"
    few = f"{kept} only {share} at {homes:,} homes: join zones, or promise less."
    if first[homes].value_of_data == 0.0:
        few = f"At {homes:,} homes even exact data add nothing to forecast and regional load: join zones."
    sentences = [f"{kept} {share} at {homes:,} homes." if enough else few]
    if evaluation.own_readings:
        own = first[evaluation.main_size].results
        private, forecast, exact = (100 * own[way].error for way in (Way.PRIVATE, Way.FORECAST, Way.EXACT))
        of_file = (
            f"At {evaluation.main_size:,} homes, the size of the file, the private price is {private:.1f} % off, the "
            f"forecast alone {forecast:.1f} % and a prediction from exact demand {exact:.1f} %."
        )
        otherwise = (
            "murmurate plan may say otherwise for the same homes: it computes without readings, from the forecast, the "
            "bound and the promise of its zone file and with usual deviations."
        )
        sentences = [of_file, *sentences, otherwise]
    others = {
        Way.EXACT_ECHO: "an echo of exact demand, which has no noise at all but prices the demand of half an hour ago",
        Way.REGIONAL_LOAD: "a public forecast with regional load, which needs no release of the zone",
    }
    if evaluation.own_readings:
        others[Way.REGIONAL_LOAD] = f"a {_OWN_NAMES[Way.REGIONAL_LOAD]}, which is not private"
    for way, words in others.items():
        nearer = 0  # the size from which on the private prediction is better
        for homes, one in first.items():
            is_better = one.results[Way.PRIVATE].error < _CLEARLY * one.results[way].error
            nearer = (nearer or homes) if is_better else 0
        if nearer:
            private, other = (100 * first[nearer].results[each].error for each in (Way.PRIVATE, way))
            errors = f"{private:.1f} % off instead of {other:.1f} % there"
            sentences.append(f"From {nearer:,} homes on it is clearly nearer to the demand than {words}: {errors}.")
        else:
            sentences.append(f"At the largest of these sizes it is not clearly nearer to the demand than {words}.")
    return sentences


def money_sentence(evaluation: Evaluation) -> str:
    """Return what the private price and its strongest rival lose, at the size in the middle, with the first promise.

    Next to it what the machines cost.
    """
    homes = evaluation.main_size
    compared = evaluation.comparisons[homes][0]
    rival, private, exact = (compared.strongest_rival, *(compared.results[way] for way in (Way.PRIVATE, Way.EXACT)))
    gain, running = rival.loss - private.loss, _MACHINES_A_YEAR / homes
    said = f"gains {gain:.3f}" if gain > 0 else f"loses {-gain:.3f}"
    return (
        f"At {homes:,} homes the private price loses {private.loss:.3f} EUR per household and year. The strongest "
        f"rival that shows no exact demand of a quarter hour ({name_way(evaluation, rival.way)}) loses "
        f"{rival.loss:.3f} EUR, a prediction from exact demand {exact.loss:.3f} EUR. So the private price {said} EUR "
        f"against that rival, and the machines cost {running:.3f} EUR if this zone pays them alone."
    )


def promise_sentences(evaluation: Evaluation) -> list[str]:
    """Return what the strongest promise costs compared with the weakest, if there are several."""
    if len(evaluation.promises) == 1:
        return []
    first, *_, last = _strongest_first(evaluation)
    homes = evaluation.main_size
    strong, weak = (evaluation.comparisons[homes][number].results[Way.PRIVATE] for number in (first, last))
    names = [evaluation.promises[number].short for number in (first, last)]
    cost = (
        f"At {homes:,} homes, “{names[0]}” instead of “{names[1]}” costs {100 * (strong.error - weak.error):.1f} "
        f"points of error ({100 * strong.error:.1f} % instead of {100 * weak.error:.1f} %) and "
        f"{strong.loss - weak.loss:.3f} EUR per household and year."
    )
    return [cost]


def _strongest_first(evaluation: Evaluation) -> list[int]:
    """Return the numbers of the promises, the one with most noise first."""
    return sorted(range(len(evaluation.promises)), key=lambda number: -evaluation.promises[number].law.sd)


def stress_sentences(evaluation: Evaluation) -> list[str]:
    """Return sentences on a wrong level, homes that change, and demand that answers strongly."""

    def list_ratios(under: Stress, name: str) -> str:
        ratios = {homes: getattr(measured[under], name) for homes, measured in evaluation.stress.items()}
        return ", ".join(f"{ratio:.2f} ({homes:,} homes)" for homes, ratio in ratios.items())

    low, less = (list_ratios(under, "error_ratio") for under in (Stress.WRONG_LEVEL, Stress.LESS_USE))
    (loss, step), (shifted_loss, shifted_step) = (
        [list_ratios(under, name) for name in ("loss_ratio", "step_ratio")]
        for under in (Stress.STRONG_ANSWER, Stress.SHIFTED)
    )
    wrong = "The level of the zone is taken 10 %"
    strong = "Demand answers strongly (convex curve, elasticity 0.3): loss over that of an echo of exact demand"
    later = "The same, and four fifths of what is not used are used in the hours after, as by cars and heat pumps"
    return [
        f"{wrong} too low: error of the private prediction over that of forecast and regional load: {low}.",
        f"Homes of the zone use 15 % less from day {evaluation.change_day} on: the same, from then on: {less}.",
        f"{strong}: {loss}; price steps: {step}.",
        f"{later}: {shifted_loss}; price steps: {shifted_step}.",
    ]


def draw_homes_figure(evaluation: Evaluation) -> Figure:
    """Draw the error against the number of homes, and the share of what exact data add."""
    drawn = Figure(figsize=(11, 5.2), layout="constrained")
    left, right = drawn.subplots(1, 2, width_ratios=(1.25, 1))
    sizes, by_size = evaluation.sizes, evaluation.comparisons.values()

    def plot_way(way: Way, color: str, marker: str, label: str) -> None:
        errors = [100 * of_size[0].results[way].error for of_size in by_size]
        left.plot(sizes, errors, color=color, marker=marker, ms=6, lw=1.6, ls="--", label=label)

    for way, marker in ((Way.FORECAST, "x"), (Way.REGIONAL_LOAD, "d")):
        plot_way(way, MUTED_COLOR, marker, name_way(evaluation, way))
    plot_way(Way.EXACT_ECHO, NAIVE_COLOR, "+", "echo of exact demand")
    for number, noise in enumerate(evaluation.promises):
        look = {"color": _PROMISE_COLORS[number % 3], "marker": _MARKERS[number % len(_MARKERS)], "ms": 5, "lw": 2}
        errors = [100 * of_size[number].results[Way.PRIVATE].error for of_size in by_size]
        left.plot(sizes, errors, label=f"private: {noise.short}", **look)
        right.plot(sizes, [100 * of_size[number].value_of_data for of_size in by_size], **look)
    plot_way(Way.EXACT, TEXT_COLOR, ".", "prediction from exact demand")
    left.set_ylim(bottom=0)
    left.set_ylabel("rms error of the demand, % of the mean import")
    right.axhline(100, color=TEXT_COLOR, lw=1, ls=":")
    right.set_ylim(min([0, *right.get_ylim()]), 105)
    right.set_ylabel("% of what exact data add")
    set_axes_title(left, "How many homes do I need?", "error of the demand that a price is made for; lower is better")
    set_axes_title(right, "How much of what data add is kept?", "0 %: forecast and regional load; 100 %: exact data")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(sizes)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda homes, _: f"{homes:,.0f}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("homes in the zone")
    _finish_panels(drawn, (left, right), 3)
    return drawn


def draw_promise_figure(evaluation: Evaluation) -> Figure:
    """Draw error and loss from no data, over each promise, to exact data, one line for each size."""
    drawn = Figure(figsize=(11, 5.2), layout="constrained")
    left, right = drawn.subplots(1, 2)
    order = _strongest_first(evaluation)
    names = [f"no release: forecast,\n{'file' if evaluation.own_readings else 'regional'} load"]
    for number in order:
        short = evaluation.promises[number].short
        names.append(
            short.replace("h: epsilon", "h:\nepsilon").replace("d: epsilon", "d:\nepsilon").replace(" + ", " +\n")
        )
    names.append("exact data,\nno promise")
    colors = _SIZE_COLORS[-len(evaluation.sizes) :]
    for number, (homes, of_size) in enumerate(evaluation.comparisons.items()):
        plain = of_size[0].results
        results = [plain[Way.REGIONAL_LOAD], *(of_size[n].results[Way.PRIVATE] for n in order), plain[Way.EXACT]]
        look = {"color": colors[number % len(colors)], "marker": _MARKERS[number % 5], "ms": 5, "lw": 2}
        label = f"{homes:,} homes"
        left.plot(range(len(names)), [100 * result.error for result in results], label=label, **look)
        right.plot(range(len(names)), [result.loss for result in results], label=label, **look)
    left.set_ylabel("rms error of the demand, % of the mean import")
    right.set_ylabel("EUR per household and year")
    set_axes_title(left, "What does a stronger promise cost me?", "error of the demand that a price is made for")
    set_axes_title(right, "The same in money", "welfare lost to the best price, by a predicted price")
    for axes in (left, right):
        axes.set_ylim(bottom=0)
        axes.set_xlim(-0.3, len(names) - 0.7)
        axes.set_xticks(range(len(names)), names, fontsize=8.5)
    _finish_panels(drawn, (left, right), 5)
    return drawn


def _finish_panels(figure: Figure, panels: tuple[Axes, Axes], columns: int) -> None:
    """Set the style of both panels, and one legend below them."""
    for axes in panels:
        style_axes(axes)
        axes.grid(axis="y", color="#e6eaee", lw=0.8)
        axes.set_axisbelow(True)
    lines, labels = panels[0].get_legend_handles_labels()
    look = {"frameon": False, "fontsize": 9, "labelcolor": TEXT_COLOR}
    figure.legend(lines, labels, loc="outside lower center", ncols=columns, **look)
