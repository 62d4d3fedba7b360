"""What `import ray` finds in a Python that was started by a program with the alias; it installs the alias there."""

import sys

import runtime
from runtime.compat import ray as _alias

_alias.install()
sys.modules[__name__] = runtime
