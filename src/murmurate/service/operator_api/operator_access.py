"""Who may see the operator's page: a client with a secret, or a user whom a proxy has authenticated and names."""

from __future__ import annotations

import logging
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request

from murmurate.service.auth import AuthStore
from murmurate.service.logging_setup import RateLimit
from murmurate.service.settings import OperatorLogin
from murmurate.service.web.address_counts import AddressGroups
from murmurate.service.web.request_limits import look_up_anonymous

logger = logging.getLogger(__name__)
logger.addFilter(RateLimit())  # its only line is caused by clients


class OperatorAccess:
    """Authenticates operators."""

    def __init__(self, access: AuthStore, login: OperatorLogin | None) -> None:
        self._access, self._login = access, login
        self._proxies = AddressGroups(login.proxies if login else ())  # exempts those that name their users

    async def authenticate(self, request: Request) -> str:
        """Return the name of the operator who sends a request.

        The header counts if the proxy itself is connected, and must be there once. From any other address it is not
        looked at. With it, name and secret are not looked at: a proxy may send its own ones.

        Raises AuthError without valid name and secret, and HTTPException (403) for a user who is no operator, or for a
        change that another site has its reader's browser send.
        """
        fetched_by = request.headers.get("sec-fetch-site", "cross-site" if "origin" in request.headers else "none")
        if request.method == "POST" and fetched_by not in {"none", "same-origin"}:
            raise HTTPException(403, "another site has made this request")
        if (login := self._login) and self._proxies.find(getattr(request.state, "peer", "")) is None:
            header = login.header.lower().encode()
            # A name that is no UTF-8 is no text that the settings can hold.
            names = [text.decode(errors="surrogateescape") for name, text in request.headers.raw if name == header]
            if len(names) == 1 and names[0] in login.users:
                return names[0]
            if names:
                logger.warning("operator refused", extra={"users": names[:5], "route": request.url.path})
                raise HTTPException(403, f"{login.header} names no operator: add the user to [operator_login]")
        check = partial(self._access.authenticate_operator, request.headers)
        return (await look_up_anonymous(request, check)).id
