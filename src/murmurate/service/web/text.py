"""Numbers and durations in words, as pages show them."""

from __future__ import annotations


def format_cost(epsilon_micro: int, rho_micro: int) -> str:
    """
    >>> format_cost(1_250_000, 0), format_cost(0, 40), format_cost(0, 0)
    ('ε = 1.250000', 'ρ = 0.000040', 'nothing')
    """
    micro = {"ε": epsilon_micro, "ρ": rho_micro}
    return " and ".join(f"{name} = {value / 1e6:,.6f}" for name, value in micro.items() if value) or "nothing"


def format_duration(seconds: float) -> str:
    """
    >>> format_duration(42.4), format_duration(238), format_duration(7300), format_duration(200_000)
    ('42 s', '4 min', '2 h', '2 days')
    """
    if seconds < 90:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 36 * 3600 else f"{seconds / 86_400:.0f} days"
