"""The part of a plan's page that says which bound was chosen, and why."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from murmurate.planning.bound_choice import BoundChoice
from murmurate.prediction.sensor import find_highest_as_good


def print_bound_choice(choice: BoundChoice, console: Console) -> None:
    """The bounds that were tried, the one that was chosen and why, and where else it must stand."""
    chosen, kind = choice.chosen, choice.kind
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("bound, Wh", "noise, rms kWh", "predicted error of the demand that is priced, %"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in choice.tried:
        error = f"{100 * each.predicted_error:.2f}"
        mark = "chosen" if each == chosen else ""
        table.add_row(f"{each.bound_wh:,}", f"{each.noise_sd_wh / 1000:,.2f}", error, mark)
    console.print(f"[bold]Bound[/] of {kind}: {chosen.bound_wh:,} Wh, chosen by the plan.")
    console.print(table)
    console.print(
        "A lower bound needs less noise and shows less of the demand; the predicted error counts both, and is least "
        f"at {chosen.bound_wh:,} Wh. It is computed from the zone file and the forecast file alone, which are public: "
        "no reading is used."
    )
    higher = find_highest_as_good(choice.tried)
    if higher.bound_wh > chosen.bound_wh:
        console.print(
            f"A bound of {higher.bound_wh:,} Wh is as good within 1 % and cuts off less: state it if the tariff rises "
            "steeply with demand."
        )
    console.print(
        f"Put bound_wh = {chosen.bound_wh} into the meter table for each {kind}. Where one has several meters, their "
        f"bounds must add up to {chosen.bound_wh} or less. The zone file in the plan has that number too.\n"
    )
