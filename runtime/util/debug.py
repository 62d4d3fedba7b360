"""Log messages that should not be repeated."""

from __future__ import annotations

import time

PERIOD_S = 60.0

_logged: set[str] = set()
_disabled = False
_periodic = False
_last_logged_s = 0.0


def log_once(key: str) -> bool:
    """Whether this is the first call with `key` in this process."""
    global _last_logged_s
    if _disabled:
        return False
    now = time.monotonic()
    if key not in _logged:
        _logged.add(key)
        _last_logged_s = now
        return True
    if _periodic and now - _last_logged_s > PERIOD_S:
        _logged.clear()
        _last_logged_s = now
    return False


def disable_log_once_globally() -> None:
    """Makes `log_once` return False from now on, in this process."""
    global _disabled
    _disabled = True


def enable_periodic_logging() -> None:
    """Makes `log_once` forget what it has seen every minute."""
    global _periodic
    _periodic = True


def reset_log_once(key: str | None = None) -> None:
    """Makes `log_once` forget `key`, or everything."""
    if key is None:
        _logged.clear()
    else:
        _logged.discard(key)
