"""The page of an evaluation: one HTML file with its figures, tables, and what they do not show."""

from __future__ import annotations

from html import escape
from pathlib import Path

from murmurate.lab.evaluate.comparison import WayResult
from murmurate.lab.evaluate.evaluation import Evaluation
from murmurate.lab.evaluate.evaluation_figures import HOMES_FIGURE, PROMISE_FIGURE
from murmurate.lab.evaluate.evaluation_report import homes_sentences, promise_sentences, stress_cells
from murmurate.lab.evaluate.zone_pricing import Way
from murmurate.lab.html_page import html_document, html_figure, html_list, html_paragraph, html_table

_NOT_SHOWN_SIMULATED = (
    "Real meters. Homes, weather and shocks are simulated. What is not known of real regions was set so that a "
    "forecast of the year before is about 8 % off for large zones. Run it with --readings on your own data.\n"
    "Solar feed-in, use that shifts to another interval, and homes that answer in order to mislead.\n"
    "Other guesses of the filter. How large its zone states are was set by hand, with the generator known. Errors "
    "change little if they are half or twice as large.\n"
    "Regions of a million homes. Zones as large as the region are its sums with shocks of their own."
)
_NOT_SHOWN_READINGS = (
    "Neighbourhoods. Zones are groups of households drawn at random; real zones share more: weather, heating, habits.\n"
    "Public regional load. Here it is the sum of the whole file, of which a zone is a part.\n"
    "Temperature. It is not in the file, so the forecast has no response to cold.\n"
    "Solar feed-in, use that shifts to another interval, and homes that answer in order to mislead.\n"
    "A year. Forecasts know only the weeks before."
)
_NOT_SHOWN = (
    "Exact noise. It is drawn in floating point here, from the law that the planner found. Published noise is exact.\n"
    "All of the money. Only the answer within an interval counts, at the stated elasticity: no capacity, no networks, "
    "no shifting. With a good forecast, all that exact data can add is small; with a wrong one it is large.\n"
    "Other seasons. Standard errors are over zones of one season; seasons differ more."
)


def make_page(evaluation: Evaluation, source: str, command: str, out: Path, *, simulated: bool) -> str:
    """Return `index.html`. The figures are read from the folder `out`; `source` is a sentence on what was priced."""
    setting = evaluation.setting
    priced = (
        f"Prices are made two quarter hours ahead, with a {setting.supply.value} supply curve; demand answers with an "
        f"elasticity of {setting.elasticity:g}. {evaluation.counted_days} days count, after the filter has learned."
    )
    parts = [
        html_paragraph(f"{source} {priced}"),
        "<h2>How many homes do I need?</h2>",
        html_list(homes_sentences(evaluation)),
        html_figure(
            out / f"{HOMES_FIGURE}.svg", "Error and share of what exact data add, against the number of homes in a zone"
        ),
        "<h2>What does a stronger promise cost me?</h2>",
        html_list(promise_sentences(evaluation)),
        html_figure(
            out / f"{PROMISE_FIGURE}.svg",
            "Error and welfare loss for each promise and size, from no data to exact data",
        ),
        _promise_table(evaluation),
        "<h2>Every way, at every size</h2>",
        *_way_tables(evaluation),
        "<h2>When things are not as usual</h2>",
        *_stress_section(evaluation),
        "<h2>What this does not show</h2>",
        html_list([*(_NOT_SHOWN_SIMULATED if simulated else _NOT_SHOWN_READINGS).split("\n"), *_NOT_SHOWN.split("\n")]),
        f'<p class="muted">Made by <code>{escape(command)}</code>. All numbers are in <code>results.json</code>.</p>',
    ]
    return html_document("What a private price is worth", parts)


def _promise_table(evaluation: Evaluation) -> str:
    """The noise of each promise, and the bound that suits each size."""
    names = ("promise", "noise, in bounds", *(f"bound at {homes:,} homes" for homes in evaluation.sizes))
    rows = [
        (
            "",
            [
                noise.promise,
                f"{noise.law.sd:.1f}",
                *(f"{of_size[number].bound_wh:,} Wh" for of_size in evaluation.comparisons.values()),
            ],
        )
        for number, noise in enumerate(evaluation.promises)
    ]
    said = (
        "The planner finds the least noise for each promise, as a multiple of the bound at which readings are clipped. "
        "A low bound needs little noise but hides peaks; the bound is the one at which the filter expects to do best."
    )
    return html_paragraph(said, "muted") + html_table(names, rows)


def _way_tables(evaluation: Evaluation) -> list[str]:
    explained = (
        "Error: rms of the demand that a price was made for, relative to the mean demand, with its standard error over "
        "zones. Loss: welfare lost to the best price, per household and year. Step: standard deviation of the change "
        "of price from one quarter hour to the next. Bill: what a mean household pays for energy in a year."
    )
    names = ("price made from", "error", "±", "loss, EUR", "step, ct/kWh", "bill, EUR")
    parts = [html_paragraph(explained, "muted")]
    shown = evaluation.sizes[len(evaluation.sizes) // 2]
    for homes, of_size in evaluation.comparisons.items():
        rows = []
        for way in Way:
            if not way.uses_noise:
                rows.append(("", [way.value, *_result_cells(of_size[0].results[way])]))
                continue
            for noise, compared in zip(evaluation.promises, of_size, strict=True):
                kind = "private" if way is Way.PRIVATE else ""
                rows.append((kind, [f"{way.value}: {noise.short}", *_result_cells(compared.results[way])]))
        zones = evaluation.zones[homes]
        about = f"{homes:,} homes ({zones} {'zone' if zones == 1 else 'zones'})"
        opened = " open" if homes == shown else ""
        parts.append(f"<details{opened}><summary>{about}</summary>{html_table(names, rows)}</details>")
    return parts


def _result_cells(result: WayResult) -> list[str]:
    return [
        f"{100 * result.error:.2f} %",
        "" if result.is_single else f"{100 * result.error_se:.2f}",
        f"{result.loss:.3f}",
        f"{100 * result.price_step_sd:.2f}",
        f"{result.bill:.2f}",
    ]


def _stress_section(evaluation: Evaluation) -> list[str]:
    explained = (
        f"With the first promise. A forecast that is 10 % too low all the time; everybody uses 15 % less from day "
        f"{evaluation.change_day} of the season on (errors from that day on); demand that answers strongly to prices "
        "(elasticity 0.3, convex curve), where an echo of demand makes prices swing. A ratio below 1 is in favour of "
        "the private prediction."
    )
    names = (
        "homes",
        "forecast 10 % low: forecast",
        "private",
        "ratio",
        "15 % less use: forecast",
        "private",
        "ratio",
        "strong answer: loss of exact echo",
        "private",
        "ratio",
        "ratio of price steps",
    )
    rows = [("", [f"{homes:,}", *stress_cells(stress)]) for homes, stress in evaluation.stress.items()]
    return [html_paragraph(explained), html_table(names, rows)]
