"""Errors of `runtime.util.state`."""


class RayStateApiException(Exception):
    """The query cannot be answered."""


class ServerUnavailable(RayStateApiException):
    """No cluster answers."""
