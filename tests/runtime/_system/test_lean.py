"""What a daemon imports at its start."""

from __future__ import annotations

import json
import subprocess
import sys

WITHOUT_TLS = """
import json, sys
from runtime._system.lean import lean_imports
with lean_imports():
    import asyncio
loaded = "_ssl" in sys.modules
asyncio.run(asyncio.sleep(0))
import ssl
print(json.dumps([loaded, asyncio.base_events.ssl is None, ssl.create_default_context() is not None]))
"""
WITHOUT_SSL = """
import json, sys
from runtime._system.lean import lean_imports
with lean_imports():
    import runtime._control.running, runtime._node.running, runtime._session.local_cluster
print(json.dumps([name for name, module in sys.modules.items() if vars(module).get("ssl", "") is None]))
"""
WITH_OWN_DIGESTS = """
import json, sys
from runtime._system.lean import lean_imports
with lean_imports():
    import runtime._control.running, runtime._node.running, runtime._session.local_cluster
loaded = "_hashlib" in sys.modules
import hashlib
modules = [module for module in sys.modules.values() if "hashlib" in vars(module)]
print(json.dumps([loaded, *(module.__name__ for module in modules if module.hashlib is not hashlib)]))
"""
LATER_DIGESTS = """
import json
from runtime._system.lean import lean_imports
with lean_imports():
    import hashlib, hmac
    proof = hmac.new(b"secret", b"nonces", hashlib.sha256).hexdigest()
import hashlib, hmac
complete = hasattr(hashlib, "scrypt") and hasattr(hashlib, "pbkdf2_hmac")
print(json.dumps([complete, proof == hmac.digest(b"secret", b"nonces", "sha256").hex()]))
"""
LATER = """
import json, sys, threading
from runtime._system.lean import lean_imports
with lean_imports():
    import asyncio, inspect
    import inspect
loaded = "ast" in sys.modules
begin, found = threading.Barrier(8), []
def look():
    begin.wait()
    found.append(inspect.signature is not None and "ast" in sys.modules)
threads = [threading.Thread(target=look) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
try:
    inspect.nothing
except AttributeError as error:
    words = str(error)
from inspect import isfunction
print(json.dumps([loaded, found, words, isfunction(look), inspect.__spec__.loader.__class__.__name__]))
"""
OF_A_JOINING_NODE = """
import json, sys
before = set(sys.modules)
import clusterctl.head.join
print(json.dumps(sorted(set(sys.modules) - before)))
"""
HEAVY = {
    "_hashlib",
    "_ssl",
    "argparse",
    "ast",
    "ctypes",
    "pathlib",
    "pickle",
    "psutil",
    "queue",
    "shutil",
    "tempfile",
    "tokenize",
    "urllib",
}
"""Milliseconds each, or nearly, of the some tens that joining a cluster takes."""
AT_MOST = 210
"""So many modules are imported; each costs, however small."""


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


def test_only_proofs_are_made_without_openssl_which_is_slow_for_much() -> None:
    assert printed(WITH_OWN_DIGESTS) == [False, "runtime._wire.handshake"]


def test_complete_digests_can_be_had_later() -> None:
    assert printed(LATER_DIGESTS) == [True, True]


def test_some_modules_come_when_they_are_used_once_and_whole() -> None:
    loaded, found, words, is_function, loader = printed(LATER)
    assert (loaded, found, is_function) == (False, [True] * 8, True)
    assert words == "module 'inspect' has no attribute 'nothing'"
    assert loader == "SourceFileLoader"


def test_a_node_that_joins_imports_nothing_heavy_and_nothing_of_workers() -> None:
    imported = {str(name) for name in printed(OF_A_JOINING_NODE)}
    assert "runtime._node.agent" in imported
    assert not HEAVY & imported
    assert len(imported) <= AT_MOST
    assert not [
        name
        for name in imported
        if name.startswith(("runtime._owner", "runtime._executor", "runtime._process"))
    ]
