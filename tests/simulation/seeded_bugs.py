"""Bugs that a developer could write: each makes the protocol look right and be wrong."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.ast_mutations import (
    DESIRED_STATE,
    INVALID_TAIL,
    MAKE_TILE,
    MERKLE,
    PREDICTED_ROWS,
    PROTOCOL,
    STORES,
    TILE,
    TILE_CHAIN,
    TILE_WRITER,
    ZONE_TABLE,
    Mutant,
    source_of,
)

_SAVE = (
    "    yield SaveState({shard: reconciled[shard].new_heads for shard in outcome.with_new_tiles}, dropped | drafts)\n"
)
_OFFERS = "    offers = {shard: at.offer for shard, at in reconciled.items() if at.offer is not None} | drafts\n"
_STALE = "    stale = seen_state.pending is not None and _why_not_next(head, seen_state.pending) is not None\n"
_NEW_HEADS = "    new_heads = catch_up(seen_state, log_tail, verify)\n"
_MAY_WRITE = " if not at.behind and at.offer is None}"
_RECONCILE = "            reconciled[shard] = reconcile_shard(state, tails[shard], verify)\n"
_SIGNER = "_require_opening(tile).key if tile.head is None else tile.head.tile.key_in_force"
_TERMS = "            terms = self.terms_for_plan(row.plan)\n"
_PLANS = "row.plan == change.before != change.after"
_KEYS = "head.tile.key_in_force == change.before != change.after"
_FORECAST = "(RowKind.FALLBACK, NoiseCode.NONE, its.forecast_ticks[slot], *_NO_NOISE, *_LEFT_OPEN)"
_MEASURED = "(RowKind.MEASURED, *noise, its.epsilon_micro[slot], its.rho_micro[slot], *_LEFT_OPEN)"
_STEP = "predicted.step(rows, carried, tile.interval, measures, pool)"
_RELEASE = "NextTile(head, TileKind.RELEASE, last + 1, table, desired)"
_CLAIMED = "{zone for zone, holder in holders.items() if holder == shard}"
_TOTAL = '        rows[f"total_{cost}"] = head.totals[number] + rows[cost]\n'
_LEAVES = "    root = compute_root(hash_leaves(head.table, interval, rows)).hex()\n"
_KEPT = "            leaf_hashes[at], totals[:, at] = head.leaf_hashes[before], head.totals[:, before]\n"
_FIND_TERMS = (
    "        except MurmurateError as error:\n            withheld[row.zone] = str(error)\n            return None\n"
)

SEEDED_BUGS = (
    # Order of the steps
    ("sent before it is saved", PROTOCOL, _SAVE, "    yield AppendToLog(drafts)\n" + _SAVE),
    ("sent and never saved", PROTOCOL, _SAVE, _SAVE.replace("dropped | drafts", "dropped")),
    (
        "drafts are not checked",
        PROTOCOL,
        " for shard, text in invalid.items() if text is not None}",
        " for shard, text in ()}",
    ),
    ("an invalid draft is reported and sent all the same", PROTOCOL, "if shard not in outcome.blocked}", "}"),
    ("the end of the log is not compared", PROTOCOL, "log_tail.last_hash != seen_state.head.tile.hash", "False"),
    ("sent without waiting for the slot", PROTOCOL, "        yield WaitForSlot()\n", ""),
    ("only new drafts are sent", PROTOCOL, _OFFERS, "    offers = drafts\n"),
    ("only old drafts are sent", PROTOCOL, _OFFERS, _OFFERS.replace(" | drafts", "")),
    # Reading the log
    ("the log is not imported", PROTOCOL, _NEW_HEADS, "    new_heads = []\n"),
    (
        "tiles of the log are not checked",
        PROTOCOL,
        "return check_next(head, offer.tile, offer.table, verify)",
        "return check_follows(head, offer.tile, offer.table)",
    ),
    (
        "signatures are not checked",
        TILE_CHAIN,
        "    check_signature(tile, verify)\n    return check_follows(head, tile, table)\n",
        "    return check_follows(head, tile, table)\n",
    ),
    ("drafting while behind", PROTOCOL, _MAY_WRITE, _MAY_WRITE.replace("not at.behind and ", "")),
    ("a log that lost tiles is accepted", PROTOCOL, "    if log_tail.last_seq < seen_seq:\n", "    if False:\n"),
    # The pending tile
    ("a pending tile is never used again", PROTOCOL, "None if behind or stale else seen_state.pending", "None"),
    ("a pending tile is used though it does not fit", PROTOCOL, _STALE, "    stale = False\n"),
    ("a lost response counts as refused", PROTOCOL, _STALE, "    stale = seen_state.pending is not None\n"),
    (
        "a lost response counts as accepted",
        PROTOCOL,
        _NEW_HEADS,
        _NEW_HEADS + "    if not new_heads and seen_state.pending is not None:\n"
        "        new_heads = [check_follows(seen_state.head, *seen_state.pending)]\n",
    ),
    (
        "a tile is kept only at acceptable prices",
        PROTOCOL,
        _STALE,
        "    cheap = seen_state.pending is not None and (seen_state.pending.tile.rows['price_ticks'] < 2**26).all()\n"
        + _STALE.replace("_why_not_next(", "(not cheap or _why_not_next(").replace("None\n", "None)\n"),
    ),
    ("a stale tile stays", PROTOCOL, "{shard: None for shard, at in reconciled.items() if at.stale_pending}", "{}"),
    (
        "a tile is written beside the pending one",
        PROTOCOL,
        _MAY_WRITE,
        _MAY_WRITE.replace(" and at.offer is None", ""),
    ),
    # Claims and zone tables
    ("the answer to a claim is ignored", PROTOCOL, _CLAIMED, "set(desired[shard].zones)"),
    ("a claim of any shard is enough", PROTOCOL, "if holder == shard}", "if holder}"),
    ("zones are not claimed", PROTOCOL, "(yield ClaimZones(dict(wanted))) if wanted else {}", "dict(wanted)"),
    (
        "zones enter without a claim",
        DESIRED_STATE,
        "zones_to_enter(head, desired).items() if zone in claimed}",
        "zones_to_enter(head, desired).items()}",
    ),
    (
        "a zone of another shard is not reported",
        PROTOCOL,
        "        if holders[zone] != shard:\n",
        "        if False:\n",
    ),
    (
        "a zone enters before the shard has come to its first interval",
        DESIRED_STATE,
        " and opening.first <= head.interval + 1",
        "",
    ),
    ("a zone that enters takes the place of the others", DESIRED_STATE, "[*rows, *entered]", "[*entered]"),
    (
        "a zone leaves its shard",
        TILE_CHAIN,
        "    elif set(after.closed) != ended:\n",
        "    elif set(after.closed) - ended:\n",
    ),
    (
        "a zone is opened again after it was closed",
        DESIRED_STATE,
        "if zone not in head.table.column and",
        "if zone not in head.table.position and",
    ),
    ("a zone enters to be closed", DESIRED_STATE, " if zone not in desired.closing}", "}"),
    ("zones that were closed are forgotten", DESIRED_STATE, "[*head.table.closed, *closing]", "[*closing]"),
    ("a zone is closed and stays open", DESIRED_STATE, "        if row.zone not in leaving\n", ""),
    ("a zone is not closed", DESIRED_STATE, "head.table.position.keys() & set(desired.closing)", "set()"),
    (
        "a shard goes on without zones",
        DESIRED_STATE,
        "    if not head.table.rows:  # the shard has ended\n",
        "    if False:\n",
    ),
    (
        "the totals of a closed zone are not compared",
        TILE_CHAIN,
        "    elif set(after.closed) != ended:\n",
        "    elif {zone[:6] for zone in after.closed} != {zone[:6] for zone in ended}:\n",
    ),
    (
        "the end of a closed zone is not compared",
        TILE_CHAIN,
        "    elif set(after.closed) != ended:\n",
        "    elif {zone._replace(last=0) for zone in after.closed} != {zone._replace(last=0) for zone in ended}:\n",
    ),
    (
        "a closed zone may be lost",
        TILE_CHAIN,
        "    ended = {*before.closed, *leaving}\n",
        "    ended = {*(before.closed if after.closed else ()), *leaving}\n",
    ),
    (
        "a closed zone has the totals of another zone",
        TILE_CHAIN,
        "*map(int, head.totals[:, at]))",
        "*map(int, head.totals[:, 0]))",
    ),
    (
        "the header does not state what a closed zone has spent",
        MAKE_TILE,
        "extensions={CLOSED: closing} if closing else {}",
        "extensions={}",
    ),
    (
        "what a header states about closed zones is not compared",
        TILE_CHAIN,
        "    _require(tile, CLOSED, stated, ",
        "    (lambda *_: None)(tile, CLOSED, stated, ",
    ),
    (
        "a tile follows the end of a shard",
        TILE_CHAIN,
        '    if not head.table.rows:\n        raise ChainError("shard",',
        '    if False:\n        raise ChainError("shard",',
    ),
    (
        "a line follows the end of its zone",
        TILE_CHAIN,
        '    if not head.table.rows:\n        raise ChainError("zone",',
        '    if False:\n        raise ChainError("zone",',
    ),
    ("the plan of a line is not compared", TILE_CHAIN, '_require(tile, "plan", proof.plan, before.plan)', "pass"),
    ("an entering zone takes the place of another", TILE_CHAIN, _KEPT, _KEPT.replace("[before]", "[0]")),
    ("zones keep the totals of another zone", TILE_CHAIN, _KEPT, _KEPT.replace("[:, before]", "[:, -1 - before]")),
    # Tiles
    (
        "a leaf is left out of the root",
        MAKE_TILE,
        _LEAVES,
        _LEAVES.replace("interval, rows))", "interval, rows)[:-1] or [b''])"),
    ),
    ("the root is over other leaves", MAKE_TILE, _LEAVES, _LEAVES.replace("interval, rows", "interval - 1, rows")),
    ("rows do not name the leaf before", MAKE_TILE, '    rows["prev"] = head.leaf_hashes\n', ""),
    (
        "the root is not checked",
        TILE_CHAIN,
        '    _require(tile, "root", tile.header.root, tile.find_root(hashes))\n',
        "",
    ),
    (
        "an odd node is hashed with itself",
        MERKLE,
        "above + level[-1:] if",
        "above + [sha256(NODE_PREFIX + level[-1] * 2).digest()] if",
    ),
    (
        "a leaf does not name its interval",
        TILE,
        "sha256(prefix + at_interval + data[at : at + size])",
        "sha256(prefix + data[at : at + size])",
    ),
    ("a leaf does not name its plan", ZONE_TABLE, " + name + bytes.fromhex(plan)", " + name"),
    (
        "rows name the leaf of another zone",
        MAKE_TILE,
        'rows["prev"] = head.leaf_hashes\n',
        'rows["prev"] = head.leaf_hashes[::-1]\n',
    ),
    # Setting tiles aside
    ("the last valid tile is set aside too", INVALID_TAIL, "head.tile.header.seq + 1", "head.tile.header.seq"),
    ("a signed tile is set aside", INVALID_TAIL, "            if tile_hash not in held:\n", "            if False:\n"),
    (
        "a valid tile is set aside: the head does not go on",
        INVALID_TAIL,
        "            head = check_next(head, tile,",
        "            check_next(head, tile,",
    ),
    ("an unsigned tail stays", INVALID_TAIL, "if _is_signed(line, key, verify)", "if True"),
    ("the key that a thief names counts", INVALID_TAIL, "verify(key or named, signed,", "verify(named, signed,"),
    (
        "unsigned tiles are taken for valid",
        INVALID_TAIL,
        "check_next(head, tile, load_table(tile.header.table), verify)",
        "check_next(head, tile, load_table(tile.header.table), lambda *_: True)",
    ),
    (
        "an unreadable tile stays",
        INVALID_TAIL,
        "        except ChainError as error:\n",
        "        except KeyError as error:\n",
    ),
    # Costs
    ("the total starts again at 0", MAKE_TILE, _TOTAL, _TOTAL.replace("head.totals[number] + ", "")),
    ("the totals of another zone", MAKE_TILE, _TOTAL, _TOTAL.replace("[number]", "[number][::-1]")),
    ("the totals of the other cost", MAKE_TILE, _TOTAL, _TOTAL.replace("[number]", "[1 - number]")),
    ("the cost is not added", MAKE_TILE, _TOTAL, _TOTAL.replace(" + rows[cost]", "")),
    ("the cost is added twice", MAKE_TILE, _TOTAL, _TOTAL.replace("+ rows[cost]", "+ 2 * rows[cost]")),
    (
        "a forecast is charged",
        TILE_WRITER,
        _FORECAST,
        _FORECAST.replace("*_NO_NOISE", "0, 0, 3, 0"),
    ),
    ("a measurement is free", TILE_WRITER, _MEASURED, _MEASURED.replace("its.epsilon_micro[slot]", "0")),
    (
        "the cost of another slot",
        TILE_WRITER,
        _MEASURED,
        _MEASURED.replace("epsilon_micro[slot]", "epsilon_micro[slot - 1]"),
    ),
    ("the stated core of another slot", TILE_WRITER, "its.core_wh[slot]\n", "its.core_wh[slot - 1]\n"),
    ("the stated scale of another slot", TILE_WRITER, "its.scale_wh[slot],", "its.scale_wh[slot - 1],"),
    (
        "the noise of another slot",
        TILE_WRITER,
        "usable[zone] = its, its.slot_of_day(tile.interval)",
        "usable[zone] = its, its.slot_of_day(tile.interval + 1)",
    ),
    ("one scale for all", TILE_WRITER, "[terms.scale_wh[slot] for", "[plans[0][0].scale_wh[slot] for"),
    ("one core for all", TILE_WRITER, "[terms.core_wh[slot] for", "[plans[0][0].core_wh[slot] for"),
    ("one curve for all", TILE_WRITER, "curve=curve,", "curve=next(iter(groups))[0],"),
    ("one distribution for all", TILE_WRITER, "distribution=distribution,", "distribution=next(iter(groups))[1],"),
    (
        "the bounds of a demand are not checked",
        TILE_WRITER,
        " and its.not_hidden_reason(demand.bounds_at(row)) is None",
        "",
    ),
    (
        "the prices are swapped",
        TILE_WRITER,
        "zip(drawn.price_ticks.tolist(),",
        "zip(drawn.price_ticks.tolist()[::-1],",
    ),
    (
        "the demands are swapped",
        TILE_WRITER,
        "[demand_rows[zone] for zone in zones]",
        "[demand_rows[zone] for zone in zones[::-1]]",
    ),
    ("test-only noise is published", TILE_WRITER, "if usable and self.noise.test_only:", "if False:"),
    # Predicted prices
    ("the states of another zone", TILE_WRITER, _STEP, f"{_STEP}[::-1]"),
    ("the states of another interval", TILE_WRITER, _STEP, _STEP.replace("tile.interval", "tile.interval - 1")),
    ("the states begin anew", TILE_WRITER, "carry_over(head.last_rows,", "carry_over(None,"),
    ("the oldest price is due for ever", TILE_WRITER, "carried.due[:, 1:]", "carried.due[:, :-1]"),
    (
        "the price of an interval that is over",
        TILE_WRITER,
        "predicted.price(states, tile.interval, lead)",
        "predicted.price(states, tile.interval, 0)",
    ),
    (
        "the price of the last release",
        TILE_WRITER,
        '    rows["price_ticks"][predicted.numbers] = predicted.price(states, tile.interval, lead)\n',
        "",
    ),
    (
        "the noised demand of another zone",
        TILE_WRITER,
        "[1] for zone in zones]",
        "[1] for zone in zones[::-1]]",
    ),
    (
        "the exact demand is published",
        TILE_WRITER,
        "drawn.noisy_wh.tolist(), strict=True)",
        "demand.energy_wh[[demand_rows[zone] for zone in zones]].tolist(), strict=True)",
    ),
    (
        "the answer to prices is ignored",
        PREDICTED_ROWS,
        "np.where(paid == NO_PRICE, 1.0, answered)",
        "answered * 0 + 1",
    ),
    (
        "a withheld row forgets the states",
        PREDICTED_ROWS,
        'np.where((rows["kind"] == RowKind.WITHHELD)[:, None], carried.states, 0)',
        "0 * carried.states",
    ),
    (
        "a price that was withheld is due",
        PREDICTED_ROWS,
        'np.where(priced, last_rows["price_ticks"], NO_PRICE)',
        'last_rows["price_ticks"]',
    ),
    (
        "a zone is among its own pool",
        PREDICTED_ROWS,
        "np.array(pool) - self._shares(measures)",
        "np.array(pool) + 0 * self._shares(measures)",
    ),
    ("the pool of the tile before", TILE_WRITER, "pool.to_extensions()", "head.tile.header.extensions"),
    (
        "the pool without its last zone",
        PREDICTED_ROWS,
        "self._shares(measures).sum(axis=0)",
        "self._shares(measures)[:-1].sum(axis=0)",
    ),
    ("withheld rows are pooled", PREDICTED_ROWS, "usable[self.numbers] = measured[self.numbers]", "usable[:] = True"),
    ("a few households are a pool", PREDICTED_ROWS, "2 * homes >= self._pool_homes", "homes >= 0"),
    ("the pool is used where the plan does not", PREDICTED_ROWS, "(self._pool_homes > 0)", "(self._pool_homes >= 0)"),
    (
        "a row without a measurement is corrected",
        PREDICTED_ROWS,
        'rows["kind"] == RowKind.MEASURED, rows["noisy_wh"]',
        'rows["kind"] != RowKind.WITHHELD, rows["noisy_wh"]',
    ),
    ("the last row of another zone", TILE_CHAIN, "= rows_before[before]", "= rows_before[0]"),
    # The chain
    ("the last interval is drawn again", MAKE_TILE, "interval = head.interval + 1", "interval = head.interval"),
    ("an interval is skipped", MAKE_TILE, "interval = head.interval + 1", "interval = head.interval + 2"),
    ("the demand of the interval before", DESIRED_STATE, _RELEASE, _RELEASE.replace("last + 1", "last")),
    ("an interval is released too early", DESIRED_STATE, "if last >= desired.until", "if last > desired.until"),
    ("the number is not increased", MAKE_TILE, "last.seq + 1", "last.seq"),
    ("the wrong predecessor is named", MAKE_TILE, "prev=head.tile.hash", "prev=last.prev"),
    ("the old key signs after a rotation", TILE_WRITER, _SIGNER, _SIGNER.replace("key_in_force", "header.key")),
    ("the newest key signs before its time", TILE_WRITER, _SIGNER, "list(self.signers)[-1]"),
    (
        "the old plan prices after a change",
        DESIRED_STATE,
        "row._replace(plan=changes[row.zone].after, ",
        "row._replace(plan=changes[row.zone].before, ",
    ),
    ("a plan keeps the currency of the last one", DESIRED_STATE, "currency=changes[row.zone].currency, ", ""),
    (
        "a plan with other intervals is used",
        TILE_WRITER,
        "(terms.interval_s, terms.currency, terms.tick) != (interval_s, row.currency, row.tick)",
        "False",
    ),
    ("plans change back and forth", DESIRED_STATE, _PLANS, "row.plan != change.after"),
    ("keys change back and forth", DESIRED_STATE, _KEYS, "head.tile.key_in_force != change.after"),
    ("what is late is priced", DESIRED_STATE, "return self.interval < self.desired.priced_from", "return False"),
    ("a forecast in spite of demand", TILE_WRITER, "if row is not None and its is not None and", "if False and"),
    # Isolation between shards, and between the zones of a shard
    (
        "one bad shard stops the batch",
        PROTOCOL,
        _RECONCILE + "        except ShardBlockedError as error:\n",
        _RECONCILE + "        except KeyError as error:\n",
    ),
    (
        "one missing key stops the batch",
        TILE_WRITER,
        "            except MurmurateError as error:\n                drafts.refused",
        "            except KeyError as error:\n                drafts.refused",
    ),
    (
        "one bad plan stops its shard",
        TILE_WRITER,
        _FIND_TERMS,
        _FIND_TERMS.replace("            return None\n", "            raise\n"),
    ),
    ("one bad plan stops the batch", TILE_WRITER, _FIND_TERMS, _FIND_TERMS.replace("MurmurateError", "KeyError")),
    ("a zone that cannot be priced is not reported", TILE_WRITER, "            withheld[row.zone] = str(error)\n", ""),
    (
        "the first bad shard hides the others",
        PROTOCOL,
        "            outcome.blocked[shard] = BlockedReason(error.code, str(error))\n",
        "            outcome.blocked[shard] = BlockedReason(error.code, str(error))\n            break\n",
    ),
    (
        "a zone of another shard keeps this one from opening",
        DESIRED_STATE,
        "        if not entering:\n",
        "        if len(entering) < len(desired.zones):\n",
    ),
    ("a failed round keeps its locks", STORES, "        state.rollback()\n        raise\n", "        raise\n"),
    (
        "the error of a failed round is swallowed",
        STORES,
        "        state.rollback()\n        raise\n",
        "        state.rollback()\n",
    ),
    (
        "a saved round is not committed",
        STORES,
        "            state.save(new_heads, pending)\n",
        "            state.rollback()\n",
    ),
)


def seeded_mutants() -> Iterator[Mutant]:
    """Yield each seeded bug in its module. Raises LookupError unless the source contains the replaced text once."""
    for name, module, old, new in SEEDED_BUGS:
        source = source_of(module)
        if (times := source.count(old)) != 1 or old == new:
            raise LookupError(
                f"{name}: {module} contains {old!r} {times} times; update tests/simulation/seeded_bugs.py"
            )
        yield Mutant(f"seeded: {name}", module, source.replace(old, new))
