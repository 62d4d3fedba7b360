"""What is said where a library is not installed. A module that is None in `sys.modules` cannot be imported."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from runtime.data._block import batch
from runtime.data._iteration.tensors import device_of
from runtime.data._libraries import load
from runtime.data.io.filesystems import resolve

WITHOUT_EXTRA = """
import sys

sys.modules[sys.argv[1]] = None
import runtime as ray

for entry in (
    lambda: ray.data.read_csv("x"),
    lambda: ray.data.from_items([1]),
    lambda: ray.data.range(3),
    lambda: ray.data.DataType,
    lambda: ray.data.expressions,
    lambda: ray.data.preprocessors,
    lambda: ray.data.Datasource,
    lambda: ray.data.aggregate,
):
    try:
        entry()
    except ImportError as error:
        needed = f"runtime.data needs {sys.argv[1]}, which is not installed here"
        assert str(error) == f"{needed}: pip install 'clusterctl[data]'"
    else:
        raise AssertionError("no error")
ray.data.DataContext.get_current()  # needs neither
"""


@pytest.mark.parametrize("library", ["pyarrow", "numpy"])
def test_every_entry_names_the_extra(library):
    subprocess.run([sys.executable, "-c", WITHOUT_EXTRA, library], check=True, timeout=60)


@pytest.mark.parametrize(
    ("library", "use", "message"),
    [
        (
            "fsspec",
            lambda: resolve("http://x/y"),
            r"http:// needs fsspec, .*pip install 'clusterctl\[data\]'",
        ),
        ("polars", lambda: batch.to_batch(pa.table({}), "polars"), "polars.* pip install polars"),
        ("pandas", lambda: batch.to_pandas(pa.table({})), "pandas.* pip install pandas"),
        (
            "torch",
            lambda: device_of("auto"),
            "iter_torch_batches needs torch.* pip install torch",
        ),
        ("PIL", lambda: load("PIL.Image", "read_images"), "read_images needs Pillow.* pip install Pillow"),
    ],
)
def test_what_needs_a_library_names_it(monkeypatch, library, use, message):
    for module in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=message):
        use()


def test_a_scheme_names_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "adlfs", None)
    with pytest.raises(ImportError, match=r"az:// needs az.* pip install adlfs"):
        resolve("az://container/x")


def test_a_library_that_is_broken_says_so_itself(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("import not_there_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        load("broken", "read_x")
