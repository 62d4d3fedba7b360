"""Kernels over blocks. A block is a `pyarrow.Table`, always; other formats are views made at the border (`batch`).

Pure functions of tables: nothing here knows plans, tasks or the cluster.
"""

from runtime.data._libraries import require

require(("pyarrow", "numpy"), "runtime.data")
