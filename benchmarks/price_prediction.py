"""What a predicted price is worth in simulated regions, beside a forecast, an echo, and exact data.

Two worlds: one as usual, one with other seeds and shocks 1.5 times as large. For zones of each size the share of what
exact data, predicted, add to a public forecast; and how a wrong forecast, homes that change and demand that answers
strongly are dealt with. Everything has a seed: the figures are the same in every run.

    python -m benchmarks.price_prediction            # all sizes: about five minutes on two cores
    python -m benchmarks.price_prediction --quick    # one small world, zones of 1,000 and 10,000 homes
"""

from __future__ import annotations

import argparse
import sys

from murmurate.lab.evaluate.comparison import SizeComparison
from murmurate.lab.evaluate.evaluation import Evaluation, SizeStress, evaluate_region
from murmurate.lab.evaluate.promised_noise import DEFAULT_PROMISES, PromisedNoise
from murmurate.lab.evaluate.simulated_noise import NoiseLaw
from murmurate.lab.evaluate.simulated_region import USUAL_REGION, RegionSize, simulate_region
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small world, zones of 1,000 and 10,000 homes")
    parser.add_argument("--jobs", type=int, default=0, help="processes; 0: one for each core")
    arguments = parser.parse_args()
    failed = []
    for factor in (1.0,) if arguments.quick else tuple(SEEDS):
        sizes, scale = (QUICK_SIZES, QUICK_REGION) if arguments.quick else (SIZES, USUAL_REGION)
        region = simulate_region(SEEDS[factor], sizes, shock_factor=factor, scale=scale, jobs=arguments.jobs)
        found = evaluate_region(region, [BOTH_PROMISES], Setting(), jobs=arguments.jobs)
        min_share = MIN_QUICK_SHARE if arguments.quick else MIN_SHARE[factor]
        print(f"price prediction, shocks x {factor}: forecast {100 * found.forecast_error:.1f} % off on unseen weeks")
        failed += _print_world(found, min_share, MAX_LOSS_RATIO[factor])
    for complaint in failed:
        print(f"FAILED: {complaint}")
    return bool(failed)


def _print_world(found: Evaluation, min_share: dict[int, float], max_loss_ratio: float) -> list[str]:
    """Print the figures of a world. Return what is worse than it must be."""
    complaints = []
    for homes, (compared,) in found.comparisons.items():
        print(_line(compared))
        print(_stress_line(found.stress[homes]), flush=True)
        texts = _complaints(compared, found.stress[homes], min_share, max_loss_ratio)
        complaints += [f"{homes:,} homes: {text}" for text in texts]
    return complaints


def _line(found: SizeComparison) -> str:
    error = {way: 100 * found.results[way].error for way in Way}
    said = 100 * (found.results[Way.PRIVATE].predicted_error or 0)
    return (
        f"  {found.homes:7,} homes, bound {found.bound_wh:4} Wh: forecast {error[Way.FORECAST]:5.2f} %, "
        f"with regional load {error[Way.REGIONAL_LOAD]:5.2f}, noisy echo {error[Way.NOISY_ECHO]:5.1f}, "
        f"private {error[Way.PRIVATE]:5.2f} (predicted {said:.2f}), exact echo {error[Way.EXACT_ECHO]:5.2f}, "
        f"exact {error[Way.EXACT]:5.2f}: {100 * found.value_of_data:.1f} % of what exact data add"
    )


def _stress_line(stress: SizeStress) -> str:
    return (
        f"          forecast 10 % low: error x {stress.wrong_forecast.error_ratio:.2f} of the forecast's; "
        f"15 % less use: x {stress.less_use.error_ratio:.2f}; elasticity 0.3: loss x "
        f"{stress.strong_answer.loss_ratio:.2f}, steps x {stress.strong_answer.step_ratio:.2f} of the exact echo's"
    )


def _complaints(
    found: SizeComparison, stress: SizeStress, min_share: dict[int, float], max_loss_ratio: float
) -> list[str]:
    complaints, homes = [], found.homes
    if found.value_of_data < min_share.get(homes, 0.0):
        complaints.append(f"{100 * found.value_of_data:.1f} % of exact data, goal {100 * min_share[homes]:.0f} %")
    if found.results[Way.PRIVATE].error > found.results[Way.EXACT_ECHO].error:
        complaints.append("an echo of exact data is nearer to the truth")
    if max(stress.wrong_forecast.error_ratio, stress.less_use.error_ratio) > MAX_ERROR_RATIO.get(homes, 1.0):
        complaints.append("a wrong forecast or homes that change are not corrected well enough")
    if homes == 1_000 and stress.strong_answer.loss_ratio > max_loss_ratio:
        complaints.append("too much is lost where demand answers strongly")
    if homes == 1_000 and stress.strong_answer.step_ratio > MAX_STEP_RATIO:
        complaints.append("price steps are too large where demand answers strongly")
    return complaints


if __name__ == "__main__":
    sys.exit(main())
