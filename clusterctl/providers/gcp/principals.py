"""Who Google's credentials belong to."""

from __future__ import annotations

import base64
import json
from typing import Any

_UNKNOWN = ("", "default")
"""A machine of the cloud learns its service account with its first token."""


def of_credentials(credentials: Any) -> str:
    """The e-mail address of a service account or a user; "": the credentials do not tell.

    Raises:
        GoogleAuthError: they are refused.
    """
    found = _service_account(credentials)
    if found == "default":
        _refresh(credentials)
        found = _service_account(credentials)
    if found not in _UNKNOWN:
        return found
    return str(getattr(credentials, "account", "") or "") or _user(credentials)


def _service_account(credentials: Any) -> str:
    return str(getattr(credentials, "service_account_email", "") or "")


def _user(credentials: Any) -> str:
    """The e-mail address in the identity token that a user gets together with an access token. `gcloud auth
    application-default login` asks for both, and keeps neither the address nor the token."""
    from google.oauth2.credentials import Credentials

    if not isinstance(credentials, Credentials) or not credentials.refresh_token:
        return ""
    own = Credentials(  # type: ignore[no-untyped-call]
        None,
        refresh_token=credentials.refresh_token,
        token_uri=credentials.token_uri,
        client_id=credentials.client_id,
        client_secret=credentials.client_secret,
    )  # of all scopes that the user has agreed to: a token of one scope comes without an identity
    _refresh(own)
    return _email(str(own.id_token or ""))


def _refresh(credentials: Any) -> None:
    from google.auth.transport.requests import Request

    credentials.refresh(Request())


def _email(token: str) -> str:
    """The address in an identity token. The platform has sent it to us, so that its signature need not be checked."""
    try:
        body = token.split(".")[1]
        return str(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))).get("email", ""))
    except (IndexError, ValueError):
        return ""
