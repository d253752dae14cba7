"""What a predicted price is worth in simulated regions, compared with a forecast, an echo and exact data.

Two worlds: one as usual, one with other seeds and shocks 1.5 times as large. For zones of each size the share of what
exact data, predicted, add to a public forecast; and how a wrong forecast, homes that change and demand that answers
strongly are dealt with. Everything has a seed: the figures are the same in every run.

    python -m benchmarks.price_prediction            # all sizes: about five minutes on two cores
    python -m benchmarks.price_prediction --quick    # one small world, zones of 1,000 and 10,000 homes
"""

from __future__ import annotations

import sys
from math import inf

from benchmarks.goals import Goals, read_options
from murmurate.lab.evaluate.evaluation import SizeComparison, Stress, StressResult, evaluate_region
from murmurate.lab.evaluate.promised_noise import DEFAULT_PROMISES, NoiseLaw, PromisedNoise
from murmurate.lab.evaluate.region import USUAL_REGION, RegionSize, simulate_region
from murmurate.lab.evaluate.zone_pricing import Setting, Way

# Huber noise for any 24 h (1, 1e-6) and any moment 1 under `range`, in multiples of the bound (docs/decisions/0010)
BOTH_PROMISES = PromisedNoise(DEFAULT_PROMISES[0], NoiseLaw(scale=37.010**2 / 53.293, core=53.293), 1.0)
SIZES, QUICK_SIZES = (300, 1_000, 3_000, 10_000, 100_000), (1_000, 10_000)
QUICK_REGION = RegionSize(sample=20_000, whole=30_000, zones=4)
MIN_SHARE = {1.0: {1_000: 0.65, 10_000: 0.92, 100_000: 0.99}, 1.5: {1_000: 0.60, 10_000: 0.90, 100_000: 0.98}}
MIN_QUICK_SHARE = {1_000: 0.60, 10_000: 0.88}  # fewer homes in the pool, and fewer zones
SEEDS = {1.0: 1, 1.5: 2}  # by how much larger shocks are
MAX_ERROR_RATIO = {1_000: 0.5, 10_000: 0.25}  # of the forecast's, where it is wrong or homes change
MAX_LOSS_RATIO, MAX_STEP_RATIO = {1.0: 0.20, 1.5: 0.25}, 0.25  # of the exact echo's, elasticity 0.3, 1,000 homes


def main() -> int:
    """Print the figures of each world. Return 1 where one misses its goal."""
    arguments, goals = read_options(__doc__, quick=False, jobs=0), Goals()  # 0 jobs: one for each core
    for factor in (1.0,) if arguments.quick else tuple(SEEDS):
        sizes, scale = (QUICK_SIZES, QUICK_REGION) if arguments.quick else (SIZES, USUAL_REGION)
        region = simulate_region(SEEDS[factor], sizes, shock_factor=factor, scale=scale, jobs=arguments.jobs)
        found = evaluate_region(region, [BOTH_PROMISES], Setting(), jobs=arguments.jobs)
        min_share = MIN_QUICK_SHARE if arguments.quick else MIN_SHARE[factor]
        print(f"price prediction, shocks x {factor}: forecast {100 * found.forecast_error:.1f} % off on unseen weeks")
        for homes, (compared,) in found.comparisons.items():
            _print_size(goals, compared, found.stress[homes], min_share.get(homes, 0.0), MAX_LOSS_RATIO[factor])
    return goals.exit_status()


def _print_size(
    goals: Goals, found: SizeComparison, stress: dict[Stress, StressResult], min_share: float, max_loss_ratio: float
) -> None:
    homes = found.homes
    error = {way: 100 * found.results[way].error for way in Way}
    predicted = 100 * (found.results[Way.PRIVATE].predicted_error or 0)
    print(
        f"{homes:,} homes, bound {found.bound_wh} Wh: forecast {error[Way.FORECAST]:.2f} %, "
        f"with regional load {error[Way.REGIONAL_LOAD]:.2f}, noisy echo {error[Way.NOISY_ECHO]:.1f}, "
        f"private {error[Way.PRIVATE]:.2f} (predicted {predicted:.2f}), exact echo {error[Way.EXACT_ECHO]:.2f}, "
        f"exact {error[Way.EXACT]:.2f}"
    )
    begin = f"{homes:,} homes"
    goals.print_figure(f"{begin}: of what exact data add", 100 * found.value_of_data, "%", at_least=100 * min_share)
    goals.print_figure(f"{begin}: error", error[Way.PRIVATE], "%", at_most=error[Way.EXACT_ECHO])
    max_ratio = MAX_ERROR_RATIO.get(homes, 1.0)
    for what, ratio in (
        ("forecast 10 % low", stress[Stress.WRONG_FORECAST]),
        ("15 % less use", stress[Stress.LESS_USE]),
    ):
        goals.print_figure(f"{begin}, {what}: error / forecast's", ratio.error_ratio, at_most=max_ratio)
    loss, step = (max_loss_ratio, MAX_STEP_RATIO) if homes == 1_000 else (inf, inf)
    answer = stress[Stress.STRONG_ANSWER]
    goals.print_figure(f"{begin}, elasticity 0.3: loss / exact echo's", answer.loss_ratio, at_most=loss)
    goals.print_figure(f"{begin}, elasticity 0.3: price steps / exact echo's", answer.step_ratio, at_most=step)


if __name__ == "__main__":
    sys.exit(main())
