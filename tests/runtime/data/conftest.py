"""Sessions for the tests of data sets: the same as for the public API."""

import io

import pyarrow.csv as pacsv

from tests.runtime.api.conftest import fresh, session

__all__ = ["fresh", "session"]

# pyarrow keeps a pipe, by which signals stop a read, for the life of the process: before a test is looked at for leaks.
pacsv.read_csv(io.BytesIO(b"a\n1\n"))
