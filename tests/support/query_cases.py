"""The fifth family of requests: query parameters and paths at their bounds and beyond them."""

from urllib.parse import quote

from murmurate.service.public_api.client_formats import midas_rate_id
from tests.support.api_cases import ADR, AUTHORIZATION, HAPPY, INPUT, METHODS, OCTOPUS, public
from tests.support.api_servers import TODAY, WHOLE_DAYS

_HISTORY = "/zones/harbour/history.csv"
_VSE = "/zones/harbour/vse/v1/tariffs"
_DAY1, _DAY2 = f"{WHOLE_DAYS[0]}T00:00:00Z", f"{WHOLE_DAYS[1]}T00:00:00Z"
LONG = "x" * 8000
QUERY = [
    public(f"{ADR}/{what}?{query}", status)
    for what in ("programs", "events")
    for query, status in (
        ("skip=0", 200), ("skip=1&limit=1", 200), ("skip=2147483647", 200), ("skip=2147483648", 400), ("skip=-1", 400),
        ("skip=", 400), ("skip=1.0", 400), ("skip=%20", 400), ("skip=1e1", 400), ("skip=%D9%A1", 400), ("skip=+1", 400),
        ("limit=0", 200), ("limit=50", 200), ("limit=51", 400), ("limit=-1", 400), ("limit=x", 400), ("limit=01", 200),
        ("limit=" + "1" * 5000, 400), ("limit=1&limit=2", 400), ("skip=0&skip=0", 400), ("Limit=1", 400), ("x=1", 400),
        ("%FF=1", 400), ("%00=1", 400), (LONG, 400), ("targets=a", 200), ("targets=a&targets=b", 200), ("=", 400),
        ("targets=", 400), ("targets=a&targets=" + "b" * 129, 400),
    )
]  # fmt: skip
QUERY += [
    public(f"{ADR}/events?{query}", status)
    for query, status in (
        ("active=true", 200), ("active=false", 200), ("active=True", 400), ("active=1", 400), ("active=", 400),
        (f"dateStart={TODAY}", 200), (f"dateEnd={WHOLE_DAYS[0]}", 200), (f"dateStart={TODAY}T00:00:00Z", 200),
        ("dateStart=0001-01-01", 200), ("dateStart=9999-12-31", 200), ("dateStart=2025-13-01", 400),
        ("dateStart=2025-10-28garbage", 400), ("dateStart=20251028", 400), ("dateStart=", 400), ("dateEnd=x", 400),
        ("dateStart=2025-10-28&dateStart=2025-10-28", 400), ("programID=harbour-PT15M", 200), ("programID=nobody", 200),
        ("programID=%00", 400), (f"programID={LONG}", 400), ("programID=", 400), ("programName=x", 400),
    )
]  # fmt: skip
QUERY += [
    public(f"{_HISTORY}?{query}", status)
    for query, status in (
        (f"start={_DAY1}&end={_DAY2}", 200), (f"start={_DAY1}", 200), (f"end={_DAY2}", 200),
        (f"start={WHOLE_DAYS[0]}T00:00:00%2B00:00", 200), (f"start={WHOLE_DAYS[0]}T00:00:00+00:00", 200),
        (f"start={_DAY2}&end={_DAY1}", 400), (f"start={_DAY1}&end={_DAY1}", 400), ("start=2020-01-01T00:00:00Z", 200),
        ("end=2030-01-01T00:00:00Z", 404), ("start=0001-01-01T00:00:00Z", 200), ("end=9999-12-31T23:59:59Z", 404),
        ("start=0001-01-01T00:00:00%2B14:00", 200), ("end=9999-12-31T23:59:59-14:00", 404), ("start=2025-10-25", 200),
        ("start=2025-10-25&end=2025-10-26", 200), ("start=2025-10-26&end=2025-10-26", 400), ("end=2025-10-24", 404),
        ("start=20251025", 400), ("start=2025-02-30", 400), ("start=0001-01-01", 400), ("start=9999-12-31", 400),
        ("start=2025-W43-6", 400), ("start=2020-01-01&end=2021-01-01", 404),
        ("start=2025-10-25T00:00:00", 400), ("start=1761350400", 400), ("start=", 400), ("start=now", 400),
        ("start=%FF", 400), (f"start={LONG}", 400), (f"start={_DAY1}&start={_DAY1}", 400), ("begin=x", 400),
        (f"start={_DAY1}&x=1", 400),
    )
]  # fmt: skip
QUERY += [
    public(f"/zones/harbour/prices?{query}", status)
    for query, status in (
        (f"from={WHOLE_DAYS[0]}", 200), (f"to={_DAY1}", 400), (f"from={WHOLE_DAYS[0]}&to={WHOLE_DAYS[2]}", 200),
        (f"from={_DAY2}&to={_DAY1}", 400), (f"from={TODAY}&to=2030-01-01", 200), ("from=2030-01-01", 400),
        ("from=2030-01-01&to=2030-01-02", 200), ("from=2020-01-01&to=2020-01-02", 200),
        ("from=0001-01-01T00:00:00Z", 200), ("to=9999-12-31T23:59:59Z", 200), ("from=x", 400), ("to=", 400),
        ("start=2025-10-25", 400),
    )
]  # fmt: skip
QUERY += [
    public(f"/zones/harbour/cheapest?{query}", status)
    for query, status in (
        ("hours=0.25", 200), ("hours=3&before=23:00", 200), (f"hours=24&before={_DAY2}", 404), ("hours=900", 404),
        ("", 400), ("hours=0", 400), ("hours=-1", 400), ("hours=1e1", 400), ("hours=0.1", 400), ("hours=%D9%A1", 400),
        ("hours=1&before=25:00", 400), ("hours=1&before=7:00", 400), ("hours=1&after=07:00", 400), ("hours=1/4", 400),
    )
]  # fmt: skip
QUERY += [
    public(f"/zones/harbour/{OCTOPUS}?{query}", status)
    for query, status in (
        (f"period_from={_DAY1}&period_to={_DAY2}&page_size=50", 200), ("page=2&page_size=1", 200), ("page=9", 200),
        ("page_size=0", 400), ("page_size=1501", 400), ("page=x", 400), ("page=0", 400), ("forecast=1", 400),
        (f"period_from={WHOLE_DAYS[0]}T00:00:00.0000000Z", 200), ("period_from=2020-01-01&period_to=2020-01-02", 200),
    )
]  # fmt: skip
QUERY += [
    public(f"/zones/old%20town/midas/api/ValueData?{query}", status)
    for query, status in (
        ("SignalType=1", 200), ("SignalType=3", 200), ("SignalType=4", 400), ("", 400), ("ID=x", 400),
        (f"ID={midas_rate_id('old town')}", 200), (f"ID={midas_rate_id('old town')}&QueryType=realtime", 200),
        (f"ID={midas_rate_id('old town')}&QueryType=x", 400), ("LookupTable=Unit", 400),
    )
]  # fmt: skip
QUERY += [
    public("/zones/harbour/midas/api/ValueData?SignalType=0", 404),
    public("/zones/harbour/awattar/v1/marketdata", 404),
]
QUERY += [public(f"/zones/harbour{path}/") for path in ("", "/now", "/prices", "/history.csv", "/plan")]
QUERY += [public("/zones/harbour//", 404), public("/zones/harbour%2F", 404), public("/zones/harbour/?x=1", 400)]
QUERY += [
    public(f"/zones/harbour/evcc?{query}", status)
    for query, status in (
        ("forecast=true", 200), ("forecast=false", 200), ("forecast=TRUE", 400), ("forecast", 400), ("forecast=0", 400),
        ("forecast=true&forecast=true", 400), ("forcast=true", 400),
    )
]  # fmt: skip
QUERY += [
    public(f"{_VSE}?start_timestamp={_DAY1}&end_timestamp={_DAY2}"),
    public(f"{_VSE}?start_timestamp={_DAY2}&end_timestamp={_DAY1}", 400),
    public(f"{_VSE}?start_timestamp=x", 400),
    public(f"{_VSE}?tariff_type=electricity", 400),
    public("/zones/old%20town/vse/v1/tariffs", 404),
    public(f"/zones/old%20town/vse/v1/tariffs?start_timestamp={_DAY1}", 404),
]
QUERY += [
    public(f"{path}?x=1", 400)
    for path in ("/", "/zones", "/shards", "/healthz", "/openapi.json", "/zones/harbour/now", "/tiles/00000000-0000/0")
]
QUERY += [
    public(f"/zones?{query}", status)
    for query, status in (
        ("after=harbour", 200),
        ("after=", 200),
        ("after=%FF", 200),
        ("limit=1", 200),
        ("limit=0", 200),
        ("limit=1000", 200),
        ("limit=1001", 400),
        ("limit=-1", 400),
        ("limit=x", 400),
        ("after=a&after=b", 400),
        ("after=harbour&limit=1", 200),
    )
]
QUERY += [
    public(path, 404)
    for path in (
        "/zones/", "/zones/nobody", "/zones/nobody/now", "/zones/nobody/", "/zones/Harbour/now", "/zones//now",
        "/zones/%00/now", "/zones/%FF/now", "/zones/%E2%82%AC/now", f"/zones/{LONG}/now", "/zones/harbour%2Fnow/now",
        "/zones/old+town/now", "/zones/nobody/stream", "/zones/nobody/log.jsonl", "/zones/nobody/history.csv",
        f"/zones/harbour/days/{TODAY}.json", f"/zones/old%20town/days/{TODAY}.json",
        "/zones/harbour/days/2025-10-24.json", "/zones/harbour/days/2025-10-29.json",
        "/zones/harbour/days/2025-02-30.json", "/zones/harbour/days/20251025.json",
        "/zones/harbour/days/0001-01-01.json", "/zones/harbour/days/9999-12-31.json", "/zones/harbour/days/x.json",
        f"/zones/harbour/days/{WHOLE_DAYS[0]}", f"/zones/harbour/days/{WHOLE_DAYS[0]}.JSON",
        "/zones/harbour/days/.json",
        "/zones/harbour/days/2025-W43-6.json", f"/plans/{'0' * 64}.json", "/plans/x.json", "/plans/{upper}.json",
        "/log.jsonl", "/tiles/00000000-0000/100000", "/tiles/00000000-0000/-1", "/tiles/00000000-0000/01",
        "/tiles/00000000-0000/x", f"/tiles/00000000-0000/{'9' * 19}", "/tiles/nobody/0", "/tiles/%00/0", "/tiles/0",
        f"/documents/{'0' * 64}", "/documents/x", "/documents/{upper}",
        f"/plans/{'%00' * 64}.json", f"/plans/{'%27' * 64}.json", f"/plans/{quote('ä' * 64)}.json", "/../etc/passwd",
        "/zones/../openapi.json.", f"{ADR}/programs/nobody", f"{ADR}/programs/", f"{ADR}/events/nobody",
        f"{ADR}/events/%00",
        f"{ADR}/notifiers/mqtt/topics/programs/nobody/events", f"{ADR}/vens", f"{ADR}/subscriptions", "/readings",
        "/auth/token", "/metrics", "/operator",
    )
]  # fmt: skip

FAMILIES = {
    "happy path": HAPPY,
    "authorization": AUTHORIZATION,
    "wrong methods": METHODS,
    "bad input": INPUT,
    "query": QUERY,
}
