"""Bugs that somebody could write: each is a protocol that looks right and is not."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.mutation import Mutant, source_of

_SAVE = "    yield Save({zone: stands[zone].seen for zone in outcome.seen}, dropped | drafts)\n"
_OFFERS = "    offers = {zone: at.offer for zone, at in stands.items() if at.offer is not None} | drafts\n"
_STALE = "    stale = mine.pending is not None and not _fits(head, mine.pending)\n"
_SEEN = "    seen = catch_up(mine, beyond, verify)\n"
_TASK = "    task = None if behind or offer is not None else next_task(head, wish)\n"
_STAND = "            stands[zone] = stand(mine, beyond[zone], wishes[zone], verify)\n"
_SIGNER = "        key = _opened(task).key if head is None else head.key\n"
_DIGEST = "        terms = self.terms(digest)\n"
_PLANS = "head.record.plan == wish.plan.before != wish.plan.after"
_KEYS = "head.key == wish.key.before != wish.key.after"
_PRICES = "zip(zones, release.price_ticks.tolist(), strict=True)"

SEEDED = (
    # Order of the steps
    ("sent before it is saved", "publisher", _SAVE, "    yield Append(drafts)\n" + _SAVE),
    ("sent and never saved", "publisher", _SAVE, _SAVE.replace("dropped | drafts", "dropped")),
    ("what was written is not looked at", "publisher", "refused | _misfits(stands, drafts)", "refused"),
    ("a misfit is named and sent all the same", "publisher", "if zone not in outcome.aside}", "}"),
    ("the end of the log is not compared", "publisher", "mine.head.hash != beyond.last_hash", "False"),
    ("sent without waiting for the beat", "publisher", "        yield Beat()\n", ""),
    ("only new drafts are sent", "publisher", _OFFERS, "    offers = drafts\n"),
    ("only old drafts are sent", "publisher", _OFFERS, _OFFERS.replace(" | drafts", "")),
    # What the log says
    ("the log is not imported", "publisher", _SEEN, "    seen = []\n"),
    ("the log is believed unread", "publisher", "follow(head, read(line), verify)", "read(line)"),
    ("signatures are not checked", "chain", "    refuse_unsigned(entry, verify)\n", ""),
    ("drafting while behind", "publisher", _TASK, _TASK.replace("behind or ", "")),
    ("a log that lost entries is gone along with", "publisher", "if beyond.last_seq < _seq(mine.head):", "if False:"),
    # What happens to a pending draw
    ("a pending draw is never used again", "publisher", "None if behind or stale else mine.pending", "None"),
    ("a pending draw is used though it does not fit", "publisher", _STALE, "    stale = False\n"),
    ("a lost answer counts as refused", "publisher", _STALE, "    stale = mine.pending is not None\n"),
    ("a lost answer counts as accepted", "publisher", _SEEN, _SEEN.rstrip() + " or [mine.pending]\n"),
    (
        "a draw is kept only at an acceptable price",
        "publisher",
        _STALE,
        "    cheap = mine.pending is not None and (mine.pending.record.price_ticks or 0) < 2**26\n"
        + _STALE.replace("not _fits(head, mine.pending)", "not (cheap and _fits(head, mine.pending))"),
    ),
    ("a stale draw stays", "publisher", "{zone: None for zone, at in stands.items() if at.stale}", "{}"),
    ("a draw is written beside the pending one", "publisher", _TASK, _TASK.replace(" or offer is not None", "")),
    # Costs
    ("the total begins anew", "desk", "(0 if last is None else last.total_epsilon_micro) + ", "0 + "),
    ("the cost is not added", "desk", ' + what.get("epsilon_micro", 0)', ""),
    ("the cost is added twice", "desk", ' + what.get("rho_micro", 0)', ' + 2 * what.get("rho_micro", 0)'),
    ("a forecast is charged", "desk", '{"kind": Kind.FORECAST,', '{"kind": Kind.FORECAST, "epsilon_micro": 3,'),
    (
        "a forecast is charged in silence",
        "desk",
        'what.get("epsilon_micro", 0)',
        'what.get("epsilon_micro", 3 * (what["kind"] is Kind.FORECAST))',
    ),
    ("a measurement is free", "terms", '"epsilon_micro": int(self.epsilon_micro[slot])', '"epsilon_micro": 0'),
    ("the cost of another slot", "terms", "int(self.epsilon_micro[slot])", "int(self.epsilon_micro[slot - 1])"),
    ("the stated core of another slot", "terms", "int(self.core_wh[slot])", "int(self.core_wh[slot - 1])"),
    ("the core is not stated", "terms", "int(self.core_wh[slot])", "0"),
    ("the noise of another slot", "desk", "terms.slot(interval)) for", "terms.slot(interval + 1)) for"),
    ("one scale for all", "desk", "[terms.scale_wh[slot] for", "[first.scale_wh[slot] for"),
    ("one core for all", "desk", "[terms.core_wh[slot] for", "[first.core_wh[slot] for"),
    ("the core of another slot", "desk", "[terms.core_wh[slot] for", "[terms.core_wh[slot - 1] for"),
    ("the bounds of a demand are not looked at", "desk", "terms.refusal(demand.bounds_at(place)) is None", "True"),
    ("one curve for all", "desk", "(id(terms.curve), terms.law.value)", "(0, terms.law.value)"),
    ("one law for all", "desk", "(id(terms.curve), terms.law.value)", '(id(terms.curve), "")'),
    ("the prices are swapped", "desk", _PRICES, _PRICES.replace("tolist()", "tolist()[::-1]")),
    ("the demands are swapped", "desk", "[known[zone] for zone in zones]", "[known[zone] for zone in zones[::-1]]"),
    # The chain
    ("the last interval is drawn again", "wish", "None, last + 1, wish)", "None, last, wish)"),
    ("an interval is passed over", "wish", "None, last + 1, wish)", "None, last + 2, wish)"),
    ("an interval is released too early", "wish", "if last >= wish.until:", "if last > wish.until:"),
    ("the number stands still", "desk", "last.seq + 1", "last.seq"),
    ("the wrong predecessor is named", "desk", "else head.hash", "else head.record.prev"),
    ("the old key signs after a rotation", "desk", _SIGNER, _SIGNER.replace("head.key", "head.record.key")),
    ("the newest key signs before its time", "desk", _SIGNER, "        key = list(self.signers)[-1]\n"),
    (
        "the old plan prices after a change",
        "desk",
        _DIGEST,
        "        digest = task.wish.plan.before if task.wish.plan and task.kind is None else digest\n" + _DIGEST,
    ),
    (
        "the new plan prices before the change",
        "desk",
        _DIGEST,
        "        digest = task.wish.plan.after if task.wish.plan and head else digest\n" + _DIGEST,
    ),
    ("plans play ping-pong", "wish", _PLANS, "head.record.plan != wish.plan.after"),
    ("keys play ping-pong", "wish", _KEYS, "head.key != wish.key.after"),
    ("what is late is priced", "wish", "Kind.WITHHELD if last + 1 < wish.in_time_from else None", "None"),
    ("a forecast in spite of demand", "desk", "if z in known and task.kind is None", "if False"),
    # Zones and each other
    (
        "one bad chain stops the batch",
        "publisher",
        "        except ChainError as error:",
        "        except KeyError as error:",
    ),
    (
        "one bad plan stops the batch",
        "desk",
        "            except MurmurateError as error:",
        "            except KeyError as error:",
    ),
    (
        "the first bad chain hides the others",
        "publisher",
        "            outcome.aside[zone] = str(error)\n",
        "            outcome.aside[zone] = str(error)\n            break\n",
    ),
    ("a failed turn keeps its locks", "stores", "        state.rollback()\n        raise\n", "        raise\n"),
    ("a failed turn is forgotten", "stores", "        state.rollback()\n        raise\n", "        state.rollback()\n"),
    (
        "a saved turn is not committed",
        "stores",
        "            state.save(seen, pending)\n",
        "            state.rollback()\n",
    ),
)


def seeded() -> Iterator[Mutant]:
    """Each seeded bug in its module. The text that it replaces must be there, or the bug must be written anew."""
    for name, module, old, new in SEEDED:
        source = source_of(module)
        if old not in source:
            raise LookupError(f"{name}: {module}.py does not say {old!r} any more")
        yield Mutant(f"seeded: {name}", module, source.replace(old, new))
