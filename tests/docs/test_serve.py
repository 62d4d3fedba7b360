"""The programs of docs/serve.md run one after the other, and print what the page says that they print."""

from __future__ import annotations

import pathlib

from tests.docs.programs import check_programs


def test_its_programs_print_what_it_says(tmp_path: pathlib.Path) -> None:
    check_programs("serve.md", tmp_path)
