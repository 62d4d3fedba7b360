"""Who asks AWS. Pure."""

from __future__ import annotations

import re

_SESSION = re.compile(r"(?P<role>arn:[^:]+:sts::\d+:assumed-role/[^/]+)/(?P<session>.+)\Z")
_MADE_UP = re.compile(
    r"botocore-session-\d+|aws-sdk-\S+|aws-go-sdk-\d+|AWSCLI-Session|GitHubActions|i-[0-9a-f]+|\d+"
)
"""Session names that a program or a machine was given. Those of people, as of IAM Identity Center, tell who it is."""


def stable(arn: str) -> str:
    """The part of a caller's ARN that is the same next time, and on another machine."""
    match = _SESSION.match(arn)
    if match is None:
        return arn
    return match["role"] if _MADE_UP.fullmatch(match["session"]) else arn
