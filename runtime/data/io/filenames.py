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
        """The name of a task's only file."""
        return self._name(write_uuid, f"{task_index:06}")

    def get_filename_for_block(self, block: Any, write_uuid: str, task_index: int, block_index: int) -> str:
        """The name of a file with many rows.

        Args:
            block: The first rows of the file, a table.
            write_uuid: The id of the write.
            task_index: The index of the task.
            block_index: The index of the file within its task.
        """
        return self._name(write_uuid, f"{task_index:06}", f"{block_index:06}")

    def get_filename_for_row(
        self, row: dict[str, Any], write_uuid: str, task_index: int, block_index: int, row_index: int
    ) -> str:
        """The name of a file with a single row, which has index `row_index` within its block."""
        return self._name(write_uuid, f"{task_index:06}", f"{block_index:06}", f"{row_index:06}")

    def _name(self, *parts: str) -> str:
        stem = "_".join([self._dataset_uuid, *parts] if self._dataset_uuid else parts)
        return f"{stem}.{self._file_format}" if self._file_format else stem
