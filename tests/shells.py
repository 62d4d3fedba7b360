"""The shells of this machine that may be a machine's /bin/sh."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

SHELLS: Sequence[Sequence[str]] = [
    words for words in (("dash",), ("bash", "--posix"), ("busybox", "sh")) if shutil.which(words[0])
]
