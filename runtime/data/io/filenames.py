"""Names of written files."""

from __future__ import annotations

from typing import Any


class FilenameProvider:
    """Names written files. Subclass it to choose other names; they must differ between tasks, blocks and rows.

    Names must follow from the arguments alone, so that a retried task writes the same files.

    Args:
        dataset_uuid: With what names start.
        file_format: The ending of names.
    """

    def __init__(self, dataset_uuid: str | None = None, file_format: str | None = None) -> None:
        self._dataset_uuid = dataset_uuid
        self._file_format = file_format

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        """The name of a task's first file with many rows. Those of its other files are made of it."""
        parts = [self._dataset_uuid, write_uuid, f"{task_index:06}"]
        stem = "_".join(part for part in parts if part)
        return f"{stem}.{self._file_format}" if self._file_format else stem

    def get_filename_for_block(self, block: Any, write_uuid: str, task_index: int, block_index: int) -> str:
        """The name of a file with many rows.

        Args:
            block: The first rows of the file, a table.
            write_uuid: The id of the write.
            task_index: The index of the task.
            block_index: The index of the file within its task.
        """
        name = self.get_filename_for_task(write_uuid, task_index)
        return _numbered(name, block_index) if block_index else name

    def get_filename_for_row(
        self, row: dict[str, Any], write_uuid: str, task_index: int, block_index: int, row_index: int
    ) -> str:
        """The name of a file with a single row, which has index `row_index` within its block."""
        return _numbered(self.get_filename_for_task(write_uuid, task_index), block_index, row_index)


def _numbered(name: str, *numbers: int) -> str:
    """The name with numbers before its ending."""
    stem, dot, ending = name.rpartition(".")
    parts = [stem if dot else name, *(f"{number:06}" for number in numbers)]
    return "_".join(parts) + (f".{ending}" if dot else "")
