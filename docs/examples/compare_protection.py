"""What people use instead of a proven promise, attacked: a table and a figure.

python docs/examples/compare_protection.py --out comparison.svg

Homes use up to 600 Wh in a quarter hour when someone is home, and up to 300 Wh when not. The attacker knows all other
readings, or sees two sums that differ by one home, and guesses between "home all day" and "away all day".
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import murmurate as mm
from murmurate.lab.plot_style import MUTED_COLOR, NAIVE_COLOR, PRIVATE_COLOR, set_axes_title

HOME_WH, AWAY_WH = 600, 300  # the most that a home uses in a quarter hour
QUARTER_HOURS, DAYS = 96, 20_000
HOMES = (100, 1_000, 10_000, 100_000)
MEAN_WH = (HOME_WH + AWAY_WH) / 4  # half of the homes are occupied
SEED = 20261117
ZONE = """
name = "example"
currency = "EUR"
promise = ["any 24 h: epsilon 1, delta 1e-6"]
tariff = { alpha = "0.0002", beta = "0.08", tick = "0.00001" }
[occupancy.resident]
periods = { day = "00:00" }
arrive = { day = 0.5 }
leave = { day = 0.5 }
[[households]]
name = "flat"
count = 1000
bound_wh = 1000
away = { uniform_to = 300 }
home = { uniform_to = 600 }
occupancy = "resident"
"""


def show_difference(rng: np.random.Generator) -> None:
    """Two sums of at least five meters, and what their difference is."""
    readings = rng.integers(0, HOME_WH + 1, 6)
    print(f"five homes used {readings[:5].sum():,} Wh; the same five and one more used {readings.sum():,} Wh")
    print(f"the difference, {readings.sum() - readings[:5].sum()} Wh, is the reading of that home: {readings[5]} Wh")


def right_guesses(noise_wh: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """Return how often the attacker is right [%]: from one quarter hour, and from a day of them. Axes: [day, slot]."""
    home = rng.random(len(noise_wh)) < 0.5
    used = rng.integers(0, np.where(home, HOME_WH, AWAY_WH)[:, None] + 1, noise_wh.shape)
    seen = used + noise_wh
    if not noise_wh.any():
        guesses = seen[:, 0] > AWAY_WH, (seen > AWAY_WH).any(axis=1)
    else:
        guesses = seen[:, 0] > MEAN_WH, seen.mean(axis=1) > MEAN_WH
    return tuple(float(100 * np.mean(guess == home)) for guess in guesses)


def measure_ways() -> dict[str, tuple[tuple[float, float], list[float]]]:
    """Return for each way: right guesses [%], and the error of the published sum by number of homes [% of the sum]."""
    plan = mm.make_plan(mm.parse_zone(ZONE))
    slots = np.ones(DAYS * QUARTER_HOURS, np.int64)
    core_wh = slots * plan.core_wh[0] if plan.distribution is mm.NoiseDistribution.HUBER else None
    drawn = mm.SeededNoise(SEED).draw(plan.distribution, slots * plan.scale_wh[0], core_wh)
    noise_wh = drawn.reshape(DAYS, QUARTER_HOURS)
    rms_wh = float(np.sqrt(np.mean(noise_wh.astype(float) ** 2)))
    print(f"noise of one release: {rms_wh / 1000:.1f} kWh (rms), for 24 h epsilon 1, delta 1e-6, bound 1,000 Wh")
    exact = right_guesses(np.zeros_like(noise_wh), np.random.default_rng(SEED))
    noisy = right_guesses(noise_wh, np.random.default_rng(SEED))
    once = [100 * rms_wh / (homes * MEAN_WH) for homes in HOMES]
    at_each = [error * np.sqrt(homes) for error, homes in zip(once, HOMES, strict=True)]
    nothing = [0.0] * len(HOMES)
    return {
        "no protection": (exact, nothing),
        "at least five meters": (exact, nothing),
        "noise at each meter": (noisy, at_each),
        "noise once, on the sum": (noisy, once),
    }


def print_ways(ways: dict[str, tuple[tuple[float, float], list[float]]]) -> None:
    """The numbers of the figure."""
    print("\n                        right guesses [%]   error of one published sum [%], by homes")
    print("                        1/4 h       day" + "".join(f"{homes:>10,}" for homes in HOMES))
    for name, ((quarter, day), errors) in ways.items():
        print(f"{name:<22}{quarter:>7.1f}{day:>10.1f}" + "".join(f"{error:>10,.1f}" for error in errors))


def draw_ways(ways: dict[str, tuple[tuple[float, float], list[float]]], out: Path) -> None:
    """Guesses to the left, errors to the right."""
    mpl.rcParams |= {"svg.hashsalt": "murmurate", "svg.fonttype": "none", "axes.spines.top": False}
    mpl.rcParams |= {"axes.spines.right": False, "font.family": "sans-serif"}
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = list(ways)[::-1]
    bars = left.barh(names, [ways[name][0][1] for name in names], color=[PRIVATE_COLOR] * 2 + [NAIVE_COLOR] * 2)
    left.bar_label(bars, fmt="%.1f %%", padding=3)
    left.axvline(50, color=MUTED_COLOR, ls=":")
    left.set(xlabel="right guesses of an attacker [%]", xlim=(0, 118), xticks=range(0, 101, 25))
    set_axes_title(left, "Home or away, from one day", "the attacker knows all other readings; dotted: a coin toss")
    for name, color in (("noise at each meter", NAIVE_COLOR), ("noise once, on the sum", PRIVATE_COLOR)):
        right.plot(HOMES, ways[name][1], "o-", ms=4, color=color, label=name)
    right.set(xscale="log", yscale="log", xlabel="homes in the zone", ylabel="error of one published sum [%]")
    right.set(xticks=HOMES, xticklabels=[f"{homes:,}" for homes in HOMES], yticks=[0.1, 1, 10, 100, 1000])
    right.set(yticklabels=["0.1", "1", "10", "100", "1,000"])
    right.minorticks_off()
    right.legend(frameon=False, fontsize=8.5)
    set_axes_title(right, "Where the noise is added", "the same promise; root mean square, before any prediction")
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)


def main() -> None:
    """Print what each way shows and costs, and write the figure."""
    parser = argparse.ArgumentParser(description="What people use instead of a proven promise, attacked.")
    parser.add_argument("--out", type=Path, default=Path("comparison.svg"))
    out = parser.parse_args().out
    show_difference(np.random.default_rng(SEED))
    ways = measure_ways()
    print_ways(ways)
    draw_ways(ways, out)
    print(f"The figure is {out}.")


if __name__ == "__main__":
    main()
