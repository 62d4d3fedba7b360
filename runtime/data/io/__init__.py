"""Data sources and sinks: one module per format. They know paths and file systems, and nothing of plans or tasks."""

from runtime.data._libraries import require

require(("pyarrow", "numpy"), "runtime.data")
