"""What the calls of `runtime.util.state` raise."""


class RayStateApiException(Exception):
    """The question cannot be answered."""


class ServerUnavailable(RayStateApiException):
    """Nobody is there to answer."""
