"""Found by `import ray` in a Python process that a program with the alias has started; installs the alias there."""

import sys

import runtime
from runtime.compat import ray as _alias

_alias.install()
sys.modules[__name__] = runtime
