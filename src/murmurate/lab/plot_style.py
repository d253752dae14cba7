"""Colours, titles and axes that all figures share."""

from __future__ import annotations

from matplotlib.axes import Axes

TEXT_COLOR = "#22303c"
MUTED_COLOR = "#8a97a3"
OPTIMAL_COLOR, PRIVATE_COLOR, NAIVE_COLOR = TEXT_COLOR, "#0072b2", "#e69f00"  # distinct without colour vision


def set_axes_title(axes: Axes, text: str, subtitle: str = "") -> None:
    """Set the title of a figure, left-aligned, with a muted line below it."""
    axes.set_title(text, loc="left", fontsize=12, fontweight="bold", color=TEXT_COLOR, pad=22 if subtitle else 10)
    axes.text(0, 1.02, subtitle, transform=axes.transAxes, fontsize=8.5, color=MUTED_COLOR, va="bottom")


def style_axes(axes: Axes) -> None:
    """Hide the upper and right spines, and set the colour of ticks and labels."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=TEXT_COLOR, which="both")
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(TEXT_COLOR)
