"""What a daemon imports at its start."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys
from runtime._lean import import_asyncio
import_asyncio()
import asyncio
loaded = "_ssl" in sys.modules
asyncio.run(asyncio.sleep(0))
import ssl
print(json.dumps([loaded, asyncio.sslproto.ssl is None, ssl.create_default_context() is not None]))
"""


def test_asyncio_comes_without_tls_which_can_be_had_later() -> None:
    ran = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [False, True, True]
