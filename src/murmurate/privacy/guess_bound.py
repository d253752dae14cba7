"""What (epsilon, delta) means for a guess: how often it is right at most, in exact arithmetic and rounded up.

An observer guesses between two secrets that are equally likely before any price is seen. A test with error
probabilities a and b against an (epsilon, delta) private release has

    a + e^epsilon b >= 1 - delta    and    e^epsilon a + b >= 1 - delta

(Wasserman and Zhou 2010, Kairouz, Oh and Viswanath 2015), so a + b >= 2 (1 - delta)/(1 + e^epsilon). The guess is right
with probability 1 - (a + b)/2, which is at most (e^epsilon + delta)/(1 + e^epsilon). For delta = 0 the odds of the two
secrets are at most e^epsilon : 1, whatever was released.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

_MAX_EPSILON = 40  # above, the bound is 1 to 17 digits
_MIN_TERMS = 24


def max_guess_probability(epsilon: Fraction, delta: Fraction = Fraction(0)) -> Fraction:
    """Return an upper bound, exact to 15 digits, of the probability of a right guess between two equal chances.

    >>> float(max_guess_probability(Fraction(1))), float(max_guess_probability(Fraction(0)))
    (0.7310585786300049, 0.5)
    """
    if epsilon >= _MAX_EPSILON or delta >= 1:
        return Fraction(1)
    odds = _exp_upper_bound(max(epsilon, Fraction(0)))
    return (odds + delta) / (1 + odds)


def round_up_percent(probability: Fraction, digits: int = 0) -> Fraction:
    """Return a probability in percent, rounded up to `digits` decimals: never better than what is proven.

    >>> round_up_percent(Fraction(1, 2)), round_up_percent(Fraction(7311, 10_000))
    (Fraction(50, 1), Fraction(74, 1))
    """
    unit = 10**digits
    return min(Fraction(100), Fraction(ceil(100 * unit * probability), unit))


def _exp_upper_bound(x: Fraction) -> Fraction:
    """Return a rational number above e^x, for x >= 0: a Taylor sum, and a geometric series above what it leaves out."""
    count = _MIN_TERMS + 4 * ceil(x)
    term = total = Fraction(1)
    for n in range(1, count):
        term *= x / n
        total += term
    following = term * x / count
    return total + following / (1 - x / (count + 1))
