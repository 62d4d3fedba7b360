"""What a daemon imports at its start."""

from __future__ import annotations

import json
import subprocess
import sys

WITHOUT_TLS = """
import json, sys
from runtime._lean import lean_imports
with lean_imports():
    import asyncio
loaded = "_ssl" in sys.modules
asyncio.run(asyncio.sleep(0))
import ssl
print(json.dumps([loaded, asyncio.sslproto.ssl is None, ssl.create_default_context() is not None]))
"""
WITHOUT_SSL = """
import json, sys
from runtime._lean import lean_imports
with lean_imports():
    import runtime._control.running, runtime._node.running, runtime._session.local_cluster
print(json.dumps([name for name, module in sys.modules.items() if getattr(module, "ssl", "") is None]))
"""
OF_A_JOINING_NODE = """
import json, sys
before = set(sys.modules)
import clusterctl.head.worker
from runtime._lean import lean_imports
with lean_imports():
    import runtime._node.running
print(json.dumps(sorted(set(sys.modules) - before)))
"""
HEAVY = {"_ssl", "argparse", "ctypes", "pathlib", "pickle", "psutil", "shutil", "tempfile", "urllib"}
"""Milliseconds each, of the some tens that joining a cluster takes."""


def printed(program: str) -> list[object]:
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    found: list[object] = json.loads(ran.stdout)
    return found


def test_asyncio_comes_without_tls_which_can_be_had_later() -> None:
    assert printed(WITHOUT_TLS) == [False, True, True]


def test_only_asyncio_takes_tls_for_missing() -> None:
    lacking = printed(WITHOUT_SSL)
    assert lacking
    assert all(str(name).startswith("asyncio.") for name in lacking)


def test_a_node_that_joins_imports_nothing_heavy_and_nothing_of_workers() -> None:
    imported = {str(name) for name in printed(OF_A_JOINING_NODE)}
    assert "runtime._node.agent" in imported
    assert not HEAVY & imported
    assert not [name for name in imported if name.startswith("runtime._worker")]
