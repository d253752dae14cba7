"""`murmurate log verify` on copies in files: what it prints, its exit status, and damage of any kind."""

import gzip
import json
import re
import tarfile
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.sample_logs import (
    OLD,
    OTHER,
    PLAN,
    UNKNOWN_SIGNER,
    ShardLog,
    check_log,
    copied_files,
    log,
    write_tar,
)

from murmurate.commands.verify import verify_logs
from murmurate.errors import MurmurateError
from murmurate.operations.log_files import FolderWriter, read_folder, tile_name
from murmurate.operations.log_source import open_log_source


@pytest.fixture
def verify(tmp_path, capsys):
    def run(*sources, key=None, zones=(), plans=()):
        status = verify_logs([str(source) for source in sources], plans, key, zones, tmp_path)
        return status, capsys.readouterr().out

    return run


@pytest.mark.slow
def test_a_folder_an_archive_and_a_packed_archive_hold_the_same_log(tmp_path, verify):
    found = copied_files()
    for name, data in found.items():
        FolderWriter(tmp_path / "copy").add_file(name, data)
    archive = write_tar(tmp_path / "log.tar", found)
    packed = tmp_path / "log.tar.gz"
    packed.write_bytes(gzip.compress(archive.read_bytes()))
    with tarfile.open(packed) as unpacked:
        unpacked.extractall(tmp_path / "unpacked", filter="data")
    for source in (tmp_path / "copy", archive, packed, tmp_path / "unpacked"):
        status, shown = verify(source, key=OLD.public_key)
        assert status == 0
        assert f"Records: 27 in 12 tiles of {source}." in shown
        assert "Everything holds." in shown
        assert "trusted because it came first" not in shown
    assert [*open_log_source(str(archive))()] == [*read_folder(tmp_path / "copy")]
    again = write_tar(tmp_path / "again.tar", found)
    assert again.read_bytes() == archive.read_bytes()


def test_a_folder_is_added_to_and_never_changed(tmp_path):
    writer = FolderWriter(tmp_path)
    for name, data in copied_files(log().cut(4)).items():
        writer.add_file(name, data)
    for name, data in copied_files().items():
        writer.add_file(name, data)
    with pytest.raises(MurmurateError, match="differs from the log"):
        writer.add_file(tile_name("east", 3), b"another")
    assert check_log({"copy": open_log_source(str(tmp_path))}).is_valid


@pytest.mark.parametrize("shard", ["a/b", "..", ".", "ünder the hill", "x" * 180, "%2E", "a\nb"])
def test_any_name_of_a_shard_is_one_folder(tmp_path, shard):
    made = ShardLog(shard).release()
    for name, data in copied_files(made).items():
        assert len(tmp_path.joinpath(name).resolve().relative_to(tmp_path.resolve()).parts) in {2, 3}
        FolderWriter(tmp_path).add_file(name, data)
    assert "hill" in check_log({"copy": open_log_source(str(tmp_path))}).zones
    assert check_log({"copy": open_log_source(str(write_tar(tmp_path / "log.tar", copied_files(made))))}).is_valid


@pytest.mark.slow
def test_the_lines_of_one_zone_are_enough(tmp_path, verify):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join([PLAN, OTHER, *log().lines("hill")]) + "\n", encoding="utf-8")
    status, shown = verify(path)
    assert status == 0
    assert f"Records: 9 in 12 tiles of {path}." in shown
    assert "trusted because it came first" in shown
    status, shown = verify(write_tar(tmp_path / "log.tar", copied_files()), path)
    assert (status, "Everything holds." in shown) == (0, True)


def test_a_missing_plan_is_status_3_until_it_is_given(tmp_path, verify):
    archive = write_tar(tmp_path / "log.tar", copied_files(plans=[PLAN]))
    status, shown = verify(archive)
    assert (status, "was not given" in shown) == (3, True)
    plan = tmp_path / "plan.json"
    plan.write_text(OTHER, encoding="utf-8")
    assert verify(archive, plans=[plan])[0] == 0


def test_a_changed_price_is_status_1_and_names_shard_tile_and_zone(tmp_path, verify):
    def edit(rows):
        rows["price_ticks"][1] = 200_001

    status, shown = verify(write_tar(tmp_path / "log.tar", copied_files(log().cut(3).release(edit=edit))))
    assert status == 1
    assert "hill, east, tile 3: terms: price_ticks is 200001" in shown
    assert "This log is not right." in shown


def test_a_forged_log_of_another_operator_is_status_1(tmp_path, verify):
    status, shown = verify(write_tar(tmp_path / "log.tar", copied_files()), key=UNKNOWN_SIGNER.public_key)
    assert (status, "not the key you expect" in shown) == (1, True)


def test_two_copies_that_differ_give_a_proof_in_a_file(tmp_path, verify):
    one, other = (log().cut(4).release(price_ticks=price) for price in (20_000, 10_000))
    status, shown = verify(
        write_tar(tmp_path / "a.tar", copied_files(one)), write_tar(tmp_path / "b.tar", copied_files(other))
    )
    assert status == 1
    assert "Proof of misbehaviour" in shown
    proof = json.loads((tmp_path / "misbehaviour-1.json").read_text(encoding="utf-8"))
    assert (proof["key"], proof["shard"]) == (OLD.public_key, "east")
    assert proof["headers"] == [each.tiles[4].header_line.decode() for each in (one, other)]


def test_what_cannot_be_read_says_nothing_about_the_operator(tmp_path, verify):
    empty = tmp_path / "empty.tar"
    empty.write_bytes(b"")
    with pytest.raises(MurmurateError, match="no record to check"):
        verify(empty)
    packed = tmp_path / "log.tar.gz"
    packed.write_bytes(gzip.compress(write_tar(tmp_path / "log.tar", copied_files()).read_bytes())[:500])
    with pytest.raises(MurmurateError, match="does not unpack"):
        verify(packed)
    with pytest.raises(MurmurateError, match="zone nowhere is not in"):
        verify(tmp_path / "log.tar", zones=["nowhere"])


@pytest.mark.parametrize(
    "text", ["<!doctype html>\n<p>prices</p>\n", '[{"zone":"hill"}]', '{"type":"about:blank"}', "a,b\n1,2\n"]
)
def test_what_is_no_log_is_said_so_and_is_no_finding(tmp_path, verify, text):
    (tmp_path / "saved").write_text(text)
    with pytest.raises(MurmurateError, match=r"is no public log: the log of a zone is at .*log\.jsonl"):
        verify(tmp_path / "saved")


def test_a_single_tile_is_compared_with_a_log_and_is_none_itself(tmp_path, verify):
    made = log()
    archive, tile = write_tar(tmp_path / "log.tar", copied_files(made)), tmp_path / "3"
    tile.write_bytes(made.tiles[3].to_bytes())
    with pytest.raises(MurmurateError, match="is a single tile; give the log first"):
        verify(tile)
    assert verify(archive, tile)[0] == 0
    tile.write_bytes(log().cut(3).release(price_ticks=10_000).tiles[3].to_bytes())
    status, shown = verify(archive, tile)
    assert (status, "Proof of misbehaviour" in shown) == (1, True)


@pytest.mark.slow
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_flipped_byte_of_an_archive_is_found_or_carries_no_meaning(tmp_path, data):
    """Padding carries no meaning, and neither does the way in which a number of a plan is written."""
    whole = write_tar(tmp_path / "log.tar", copied_files()).read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    raw = bytearray(whole)
    raw[at] ^= data.draw(st.integers(1, 255))
    (tmp_path / "log.tar").write_bytes(raw)
    source = open_log_source(str(tmp_path / "log.tar"))
    try:
        report = check_log({"copy": source})
    except MurmurateError:
        return
    if report.is_valid and report.is_complete:
        assert [*map(meaning, source())] == [(name, meaning((name, each))[1]) for name, each in copied_files().items()]


def meaning(item):
    name, data = item
    return name, json.loads(data) if name.startswith("documents") else data


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(start=st.integers(0, 200), blocks=st.integers(1, 3))
def test_a_hole_in_an_archive_is_found_and_the_rest_is_checked(tmp_path, start, blocks):
    whole = write_tar(tmp_path / "log.tar", copied_files()).read_bytes()
    used = len(whole.rstrip(b"\0")) // 512
    at = 512 * (start % (used - blocks))
    (tmp_path / "log.tar").write_bytes(whole[:at] + b"\x07" * 512 * blocks + whole[at + 512 * blocks :])
    try:
        report = check_log({"copy": open_log_source(str(tmp_path / "log.tar"))})
    except MurmurateError:
        report = None  # the very first block says that it is an archive
    if report is None:
        assert at == 0
        return
    assert not (report.is_valid and report.is_complete)


@pytest.fixture
def daily(tmp_path, capsys):
    """The check of every day: its exit status, what it prints, and its metrics."""

    def run(*sources):
        known, metrics = tmp_path / "verified.json", tmp_path / "murmurate.prom"
        words = [str(source) for source in sources]
        status = verify_logs(words, (), None, (), tmp_path, known=known, metrics=metrics)
        values = dict(line.split() for line in metrics.read_text().splitlines() if not line.startswith("#"))
        return status, capsys.readouterr().out, values

    return run


def known_tile(tmp_path):
    (tile,) = json.loads((tmp_path / "verified.json").read_text())["tiles"].values()
    return tile


@pytest.mark.slow
def test_the_check_of_every_day_begins_with_the_last_tile_that_was_found_right(tmp_path, daily):
    whole = log()
    yesterday = write_tar(tmp_path / "yesterday.tar", copied_files(whole.cut(10)))
    today = write_tar(tmp_path / "today.tar", copied_files(whole))
    begun_s = time.time()
    status, shown, values = daily(yesterday)
    assert (status, values["murmurate_verification_failed"]) == (0, "0")
    assert begun_s - 1 <= float(values["murmurate_verification_timestamp_seconds"]) <= time.time()
    assert "in 10 tiles" in shown
    assert known_tile(tmp_path)[0] == 9
    status, shown, values = daily(today)
    assert (status, values["murmurate_verification_failed"]) == (0, "0")
    assert "in 3 tiles" in shown  # the last one of yesterday, and two more
    assert known_tile(tmp_path)[0] == 11
    assert daily(today)[0] == 0  # nothing is new


@pytest.mark.slow
def test_the_check_of_every_day_finds_damage_and_copies_that_were_set_back(tmp_path, daily):
    whole = log()
    today = write_tar(tmp_path / "today.tar", copied_files(whole))
    yesterday = write_tar(tmp_path / "yesterday.tar", copied_files(whole.cut(7)))
    damaged = copied_files(whole)
    name = next(name for name in damaged if name.endswith("000000000009.tile"))
    damaged[name] = damaged[name][:-1] + bytes([damaged[name][-1] ^ 1])
    broken = write_tar(tmp_path / "broken.tar", damaged)
    assert daily(yesterday)[0] == 0
    kept = (tmp_path / "verified.json").read_text()
    status, _, values = daily(broken)
    assert (status, values["murmurate_verification_failed"]) == (1, "1")
    assert (tmp_path / "verified.json").read_text() == kept
    assert daily(today)[0] == 0
    for sources in ([yesterday], [today, yesterday]):
        status, shown, values = daily(*sources)
        assert (status, values["murmurate_verification_failed"]) == (1, "1")
        assert "tile 11: gap: was there when the log was last verified" in re.sub(r" in \S+:", ":", shown)


@pytest.mark.slow
def test_a_change_of_plan_makes_the_check_of_every_day_one_of_the_whole_log(tmp_path, daily):
    whole = log()
    assert daily(write_tar(tmp_path / "yesterday.tar", copied_files(whole.cut(7))))[0] == 0
    status, shown, _ = daily(write_tar(tmp_path / "today.tar", copied_files(whole)))  # the change is in tile 8
    assert (status, "in 12 tiles" in shown) == (0, True)


@pytest.mark.slow
def test_a_log_whose_known_tile_is_another_one_now_is_not_right(tmp_path, daily):
    today = write_tar(tmp_path / "today.tar", copied_files(log()))
    assert daily(today)[0] == 0
    document = json.loads((tmp_path / "verified.json").read_text())
    document["tiles"] = {shard: [seq, "ab" * 32] for shard, (seq, _) in document["tiles"].items()}
    (tmp_path / "verified.json").write_text(json.dumps(document))
    assert daily(today)[0] == 1


@pytest.mark.slow
def test_once_a_week_the_check_of_every_day_is_of_the_whole_log(tmp_path, daily):
    today = write_tar(tmp_path / "today.tar", copied_files(log()))
    assert daily(today)[0] == 0
    assert "in 1 tile" in daily(today)[1]
    document = json.loads((tmp_path / "verified.json").read_text())
    document["whole_s"] -= 7 * 86_400
    (tmp_path / "verified.json").write_text(json.dumps(document))
    assert "in 12 tiles" in daily(today)[1]
    assert "in 1 tile" in daily(today)[1]
