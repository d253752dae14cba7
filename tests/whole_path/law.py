"""The law, and how it is run: over so many worlds, as the product is or with one of its old bugs."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.whole_path.bugs import planted
from tests.whole_path.life import live
from tests.whole_path.truth import Broken, broken
from tests.whole_path.worlds import World, worlds


class PromiseError(AssertionError):
    """A promise that was made and not kept."""


def keeps_its_promises(world: World, seen: Counter[str]) -> None:
    """The exact loss of everything that this world makes public is never above what plan and page claim."""
    life = live(world)
    seen["worlds"] += 1
    if life is None:
        seen["refused"] += 1
        return
    seen["releases"] += len(life.steps)
    seen["changes of plan"] += len({step.plan for step in life.steps}) - 1
    seen.update(step.asked.law.value for step in life.steps if step.asked is not None)
    found: Broken | None = next(broken(world, life), None)
    if found is not None:
        raise PromiseError(f"{found.promise}: claimed {found.claimed:.4f}, true {found.true:.4f}\n{world}")


def run(examples: int, number: int, bug: str | None = None, *, sharp: bool = False) -> tuple[Counter[str], str | None]:
    """What was seen over so many worlds, and the first promise that was broken; it stops there."""
    seen: Counter[str] = Counter()
    broke: list[str] = []

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(worlds(sharp))
    def law(world: World) -> None:
        if not broke:
            try:
                keeps_its_promises(world, seen)
            except PromiseError as error:
                broke.append(str(error))

    with planted(bug):
        law()
    return seen, broke[0] if broke else None
