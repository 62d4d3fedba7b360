"""What a restarted controller begins with."""

from __future__ import annotations

import msgspec

CONFIG = b"config"
"""Key of a configuration whose applications are being built."""
CAPACITY = b"capacity"
"""Key of the `Capacity` of declared applications."""


class Recovered(msgspec.Struct, frozen=True):
    """What the control store has from before the controller was restarted, by key."""

    values: dict[bytes, bytes]

    def below(self, prefix: str) -> dict[str, bytes]:
        """Values of the keys with this prefix, by the remainder of the key."""
        start = f"{prefix}\0".encode()
        return {
            key[len(start) :].decode(): value for key, value in self.values.items() if key.startswith(start)
        }
