"""What libraries keep for the life of a process is there before a test is looked at for leaks."""

from __future__ import annotations

import io

import fsspec.asyn
import pyarrow.csv as pacsv

pacsv.read_csv(io.BytesIO(b"a\n1\n"))  # makes the pipe by which signals stop a read
fsspec.asyn.get_loop()  # starts the thread that talks to servers
