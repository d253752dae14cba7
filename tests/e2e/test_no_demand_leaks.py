"""After a day, nothing that is public carries a demand: no route, header, page, figure or log."""

from __future__ import annotations

import json
import re
import stat
import struct
from datetime import UTC, datetime
from pathlib import Path

import httpx

from tests.e2e.harbour import demand_by_interval

PUBLIC = (
    "/",
    "/zones",
    "/zones/harbour",
    "/zones/harbour/now",
    "/zones/harbour/evcc",
    "/zones/harbour/evcc?forecast=true",
    "/zones/harbour/days",
    "/zones/harbour/days/2026-11-14.json",
    "/zones/harbour/days/2026-11-15.json",
    "/zones/harbour/history.csv",
    "/zones/harbour/vse/v1/tariffs",
    "/zones/harbour/log.jsonl",
    "/shards",
    "/openadr3/3.1.0/programs",
    "/openadr3/3.1.0/events",
    "/openadr3/3.1.0/notifiers",
    "/openapi.json",
    "/healthz",
    "/readyz",
    "/nowhere",
)
PRIVATE = ("/operator", "/operator?lang=de", "/metrics", "/openapi.json", "/healthz", "/readyz", "/nowhere")


def secrets_of(feed):
    """Exact demands, and what else follows from one: in kWh, with separators, the mean of a home."""
    found = set()
    for energy_wh, reported, _ in feed.expected.values():
        found |= {str(energy_wh), f"{energy_wh:,}", f"{energy_wh / 1000:.3f}", f"{energy_wh / reported:.4f}"}
    return re.compile(r"(?<![0-9a-f])(?:" + "|".join(map(re.escape, sorted(found))) + r")(?![0-9a-f])")


def answers(day):
    for path in PUBLIC:
        yield f"public {path}", httpx.get(day.service.url(path))
    for path in PRIVATE:
        yield f"private {path}", httpx.get(day.service.url(path, "private"), auth=("ops", day.operator.secrets["ops"]))


def test_no_answer_and_no_header_carries_a_demand(day):
    secret, seen = secrets_of(day.feed), 0
    for name, answer in answers(day):
        text = answer.text + "\n" + "\n".join(f"{key}: {value}" for key, value in answer.headers.items())
        assert not secret.search(text), name
        seen += answer.status_code == 200
    assert seen >= len(PUBLIC) + len(PRIVATE) - 4


def test_no_tile_and_no_document_carries_a_demand_as_text_or_as_the_bytes_of_a_number(day):
    secret, numbers, addresses = secrets_of(day.feed), demand_bytes(day.feed), whole_log(day.service)
    assert len(addresses) > len(day.feed.expected)
    for address in addresses:
        data = httpx.get(address).raise_for_status().content
        assert not secret.search(data.decode(errors="replace")), address
        assert not [number for number in numbers if number in data], address


def whole_log(service):
    """The address of every tile, of the prices that it decides, and of every document that one of them names."""
    tiles, prices, documents = [], [], set()
    for shard in httpx.get(service.url("/shards")).raise_for_status().json():
        for seq in range(shard["seq"] + 1):
            tiles.append(service.url(f"/tiles/{shard['shard']}/{seq}"))
            header = json.loads(httpx.get(tiles[-1]).raise_for_status().content.partition(b"\n")[0])
            documents.add(header["table"])
            if header["kind"] == "release":
                start = datetime.fromtimestamp((header["interval"] + shard["lead"]) * shard["interval_s"], UTC)
                prices.append(service.url(f"/prices/{shard['shard']}/{start:%Y%m%dT%H%M%SZ}.json"))
    for table in list(documents):
        documents |= {row["plan"] for row in httpx.get(service.url(f"/documents/{table}")).json()["zones"]}
    return [*tiles, *prices, *(service.url(f"/documents/{digest}") for digest in sorted(documents))]


def demand_bytes(feed):
    """Exact demands as a row of a tile would hold them, in either order of bytes."""
    demands = [energy_wh for energy_wh, _, _ in feed.expected.values()]
    return {struct.pack(form, energy_wh) for energy_wh in demands for form in ("<q", ">q", "<d", ">d")}


def test_no_process_of_the_service_has_logged_a_demand(day):
    text = day.service.log.read_text()
    assert '"aggregated"' in text
    assert '"released"' in text
    assert not secrets_of(day.feed).search(text)
    assert "Traceback" not in text
    assert '"crashed"' not in text


def test_the_canary_would_be_found(day):
    feed, known = day.feed, demand_by_interval(day.operator)
    energy_wh = next(iter(feed.expected.values()))[0]
    assert any(energy_wh == one[0] for one in known.values())  # it is there, where only the curator reads
    assert secrets_of(feed).search(f'{{"energy_wh": {energy_wh}}}')
    assert secrets_of(feed).search(f"demand {energy_wh / 1000:.3f} kWh")
    assert any(number in b"row" + energy_wh.to_bytes(8, "little") for number in demand_bytes(feed))


def test_readings_lie_where_only_the_curator_can_read(day):
    landing = day.operator.folder / "landing"
    paths = [landing, *landing.rglob("*")]
    assert len(paths) > len(day.feed.expected)
    open_to_others = [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert not open_to_others


def test_the_public_process_does_not_get_the_address_of_the_state(day):
    environments = {}
    for pid in day.service.process_ids():
        command, environment = (
            Path(f"/proc/{pid}/{what}").read_bytes().split(b"\0") for what in ("cmdline", "environ")
        )
        environments[command[command.index(b"--only") + 1].decode()] = b"\n".join(environment).decode()
    assert set(environments) == {"private", "worker", "public"}
    assert day.operator.dsn("state") in environments["worker"]
    assert day.operator.dsn("state") not in environments["public"]
    assert day.operator.dsn("log") in environments["public"]
