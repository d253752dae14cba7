"""Random worlds small enough to enumerate: up to 4 households, 6 intervals, 3 models, with zeros and clusters."""

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from murmurate.household.consumption import TableConsumption
from murmurate.household.occupancy import Chains, ModelClass, OccupancyModel
from murmurate.pricing.rate import RateCurve

CURVE = RateCurve.affine(alpha=1, beta="62.5", tick="0.001")
EPSILON = Fraction(1, 2)


@st.composite
def distributions(draw, outcomes):
    """A probability vector with random exact zeros, and with weights down to 1e-9."""
    weights = st.sampled_from([0, 0, 1, 1, 2, 5, 1e-9])
    found = draw(st.lists(weights, min_size=outcomes, max_size=outcomes).filter(any))
    return np.array(found) / sum(found)


@st.composite
def chains(draw, households, period):
    """One group with these members."""
    states = 2 ** len(households)
    periods = max(period) + 1
    rows = [[draw(distributions(states)) for _ in range(states)] for _ in range(periods)]
    return Chains(
        members=[[h] for h in households],
        initial=np.array(draw(distributions(states)))[:, None],
        transition=np.array(rows)[..., None],
        period=period,
        kind=[0],
    )


@st.composite
def models(draw, households, period):
    """A model that parts the households into random clusters."""
    order = draw(st.permutations(range(households)))
    cuts = draw(st.lists(st.booleans(), min_size=households - 1, max_size=households - 1))
    clusters = [[order[0]]]
    for household, cut in zip(order[1:], cuts, strict=True):
        if cut:
            clusters.append([household])
        else:
            clusters[-1].append(household)
    return OccupancyModel(groups=tuple(draw(chains(cluster, period)) for cluster in clusters))


@st.composite
def model_classes(draw, max_households=4, max_models=3):
    households = draw(st.integers(1, max_households))
    period = draw(st.lists(st.integers(0, 1), min_size=1, max_size=3).map(lambda p: p if 0 in p else [0, *p]))
    found = draw(st.lists(models(households, period), min_size=1, max_size=max_models))
    return ModelClass(models=tuple(found))


@st.composite
def consumption_laws(draw, households):
    """A law on 0..2 Wh per kind and occupancy, of which some cannot tell the states apart."""
    bound_wh = draw(st.lists(st.integers(2, 9), min_size=households, max_size=households))
    table = [[draw(distributions(3))] for _ in (0, 1)]
    return TableConsumption.of(table, kind=[0] * households, bound_wh=bound_wh)
