"""Take public series such as temperatures from the operator: a CSV of start and value over HTTP, any number of times.

    curl --user NAME:SECRET --data-binary @temperature.csv 'http://127.0.0.1:8081/public-inputs?series=Mannheim%20temperature'

A value that is posted again replaces the earlier one. A tile states the values that were known when it was made.
"""

from __future__ import annotations

import csv
import io
import logging

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from murmurate.errors import MurmurateError, ReadingError
from murmurate.prediction.public_inputs import MAX_THOUSANDTHS, THOUSANDTHS, check_series_name
from murmurate.readings.field_values import interval_start_s, parse_numeral, parse_time_ns
from murmurate.service.operator_api.operator_access import OperatorAccess
from murmurate.service.storage.session import TransactionSource
from murmurate.service.web.responses import json_response, problem_response, read_body

logger = logging.getLogger(__name__)

MAX_SERIES_BYTES = 2**20
_COLUMNS = ["start", "value"]
_INSERT = """
    INSERT INTO curator.public_input SELECT %s, %s, * FROM unnest(%s::bigint[], %s::bigint[])
    ON CONFLICT (series, interval_s, interval) DO UPDATE SET thousandths = excluded.thousandths"""


def parse_series(body: bytes, interval_s: int) -> dict[int, int]:
    """Return thousandths by interval from a CSV of `start` and `value`. Raises ReadingError naming the line.

    >>> parse_series(b"start,value\\n1970-01-01T01:00:00+01:00,-4.25\\n", 900)
    {0: -4250}
    """
    try:
        rows = list(csv.reader(io.StringIO(body.decode("utf-8-sig")), strict=True))
    except (UnicodeDecodeError, csv.Error):
        raise ReadingError("body", "no CSV", "must be UTF-8 text with the columns start and value") from None
    if not rows or rows[0] != _COLUMNS:
        raise ReadingError("line 1", "no header", "must be start,value")
    values: dict[int, int] = {}
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(_COLUMNS):
            raise ReadingError(f"line {line}", f"{len(row)} cells", "must be a start and a value")
        try:
            at_s = interval_start_s(parse_time_ns("start", row[0]), interval_s)
        except ReadingError as error:
            raise ReadingError(f"line {line}", repr(row[0]), str(error)) from None
        number = parse_numeral(row[1])
        if number is None or abs(number) * THOUSANDTHS > MAX_THOUSANDTHS:
            raise ReadingError(f"line {line}", repr(row[1]), "must be a number such as -4.25")
        values[at_s // interval_s] = round(number * THOUSANDTHS)
    return values


class PublicInputsApi:
    """The route by which an operator posts public series."""

    def __init__(self, *, state: TransactionSource, access: OperatorAccess, interval_s: int) -> None:
        self._state, self._access, self._interval_s = state, access, interval_s

    def routes(self) -> list[Route]:
        return [Route("/public-inputs", self.post_values, methods=["POST"])]

    async def post_values(self, request: Request) -> Response:
        """Store the values of a series. 200: all are stored; 400: none is, and the line is named."""
        user = await self._access.authenticate(request)
        body = await read_body(request, MAX_SERIES_BYTES)
        try:
            series = check_series_name(request.query_params.get("series", ""), "series")
            values = parse_series(body, self._interval_s)
        except MurmurateError as error:
            return problem_response(400, str(error))

        def store() -> None:
            with self._state.transaction() as connection:
                connection.execute(_INSERT, (series, self._interval_s, list(values), list(values.values())))

        await run_in_threadpool(store)
        logger.info("public inputs stored", extra={"user": user, "series": series, "values": len(values)})
        return json_response({"series": series, "stored": len(values)}, headers={"cache-control": "no-store"})
