"""Random models small enough to enumerate: up to 4 households, 6 intervals, 3 models, with zeros and clusters."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from murmurate.household.consumption import TableConsumption
from murmurate.household.occupancy import ModelClass, OccupancyChains, OccupancyModel
from murmurate.pricing.rate import RateCurve
from murmurate.units import FloatArray, IntArray

CURVE = RateCurve.affine(alpha=1, beta="62.5", tick="0.001")
EPSILON = Fraction(1, 2)


@st.composite
def distributions(draw: st.DrawFn, outcomes: int) -> FloatArray:
    """A probability vector with random exact zeros, and with weights down to 1e-9."""
    weights = st.sampled_from([0, 0, 1, 1, 2, 5, 1e-9])
    found = draw(st.lists(weights, min_size=outcomes, max_size=outcomes).filter(any))
    return np.array(found) / sum(found)


@st.composite
def tables(draw: st.DrawFn, members: Any, period: Any) -> tuple[FloatArray, FloatArray]:
    """Probabilities for groups of that many members: 1 to 12 kinds, of which some may be unused."""
    states, kinds = 2**members, draw(st.sampled_from([1, 2, 9, 12]) if members == 1 else st.just(1))
    rows = [
        [[draw(distributions(states)) for _ in range(kinds)] for _ in range(states)] for _ in range(max(period) + 1)
    ]
    initial = [draw(distributions(states)) for _ in range(kinds)]
    return np.moveaxis(np.array(initial), 0, -1), np.moveaxis(np.array(rows), 2, -1)


@st.composite
def models(draw: st.DrawFn, clusters: list[list[int]], period: Any, members: Any, kinds: IntArray) -> OccupancyModel:
    """A model in which these clusters move together; households on their own share arrays and kinds."""
    groups = []
    for cluster in clusters:
        if len(cluster) > 1:
            initial, transition = draw(tables(len(cluster), period))
            joint = np.array([[h] for h in cluster])
            groups.append(
                OccupancyChains(
                    members=joint, initial=initial, transition=transition, period=period, kind=np.array([0])
                )
            )
    if members.size:
        initial, transition = draw(tables(1, period))
        used = draw(st.sampled_from([kinds, draw(st.permutations(kinds.tolist()).map(np.array))]))
        kind = used if used.max() < initial.shape[-1] else used % initial.shape[-1]
        groups.append(
            OccupancyChains(members=members, initial=initial, transition=transition, period=period, kind=kind)
        )
    return OccupancyModel(groups=tuple(groups))


@st.composite
def model_classes(draw: st.DrawFn, max_households: int = 4, max_models: int = 3) -> ModelClass:
    """Up to three models over random clusters, with several households a group of arrays, in any order."""
    households = draw(st.integers(1, max_households))
    period = draw(st.lists(st.integers(0, 1), min_size=1, max_size=3).map(lambda p: p if 0 in p else [0, *p]))
    order = draw(st.permutations(range(households)))
    cuts = draw(st.lists(st.booleans(), min_size=households - 1, max_size=households - 1))
    clusters = [[order[0]]]
    for household, cut in zip(order[1:], cuts, strict=True):
        if cut:
            clusters.append([household])
        else:
            clusters[-1].append(household)
    members = np.array([[c[0] for c in clusters if len(c) == 1]], np.int64)
    kinds = np.array(draw(st.lists(st.integers(0, 11), min_size=members.size, max_size=members.size)), np.int64)
    one = models(clusters, period, members, kinds)
    return ModelClass(models=tuple(draw(st.lists(one, min_size=1, max_size=max_models))))


@st.composite
def consumption_laws(draw: st.DrawFn, households: int) -> TableConsumption:
    """A distribution on 0..2 Wh per kind and occupancy. Some are equal for both states."""
    bound_wh = draw(st.lists(st.integers(2, 9), min_size=households, max_size=households))
    table = [[draw(distributions(3))] for _ in (0, 1)]
    return TableConsumption.from_probabilities(table, kind=[0] * households, bound_wh=bound_wh)
