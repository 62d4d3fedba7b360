"""Indexes every Python source file of the installed standard library, on a cluster.

    clusterctl submit examples/index_stdlib.py      # on the current cluster
    python examples/index_stdlib.py                 # on this machine alone

Tasks parse and count the files of one chunk each; an actor adds the counts up; a table of 64 MiB is put into
the object store once and read in place by every task. At the end the same work is done once more in this one
process, without the cluster, and the two results are compared: the exit status is 1 if they differ.
"""

from __future__ import annotations

import argparse
import ast
import os
import pathlib
import re
import sys
import sysconfig
import time
import warnings
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

import runtime as ray

TABLE_BITS = 24  # 2**24 weights of 4 bytes: 64 MiB
CHUNK_BYTES = 600_000
WORD = re.compile(r"[^\W\d]\w*")


@dataclass
class Index:
    """What is known about a set of source files."""

    counts: Counter[str] = field(default_factory=Counter)
    imports: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    score: int = 0

    def add(self, other: Index) -> None:
        self.counts.update(other.counts)
        self.imports.update(other.imports)
        self.words.update(other.words)
        self.score += other.score


@dataclass
class Work:
    """Who indexed a chunk, and how it saw the shared table."""

    node: str
    pid: int
    files: int
    seconds: float
    table_is_shared: bool


# ---------------------------------------------------------------- the work itself, with no cluster in it


def standard_library() -> list[str]:
    """Every source file of the standard library; packages installed beside it are left out."""
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    skipped = {"site-packages", "dist-packages", "__pycache__"}
    return sorted(str(path) for path in root.rglob("*.py") if skipped.isdisjoint(path.parts))


def make_table() -> np.ndarray:
    """A weight for every hash of a word, the same in every run."""
    return np.random.default_rng(seed=1).integers(0, 1000, size=2**TABLE_BITS, dtype=np.int32)


def score_words(words: Counter[str], table: np.ndarray) -> int:
    """The weighted number of words: reads the table where it lies."""
    size, mask = len(words), 2**TABLE_BITS - 1
    slots = np.fromiter((zlib.crc32(word.encode()) & mask for word in words), dtype=np.int64, count=size)
    times = np.fromiter(words.values(), dtype=np.int64, count=size)
    return int((table[slots].astype(np.int64) * times).sum())


def index_file(path: str, table: np.ndarray) -> Index:
    source = pathlib.Path(path).read_bytes()
    text = source.decode("utf-8", errors="replace")
    index = Index(words=Counter(WORD.findall(text)))
    index.score = score_words(index.words, table)
    index.counts.update(files=1, bytes=len(source), lines=text.count("\n"))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        index.counts["files that do not parse"] += 1  # the standard library tests the parser with some
        return index
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                index.counts["functions"] += 1
            case ast.ClassDef():
                index.counts["classes"] += 1
            case ast.Import(names=names):
                index.imports.update(alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                index.imports[module.partition(".")[0]] += 1
    return index


def index_files(paths: list[str], table: np.ndarray) -> Index:
    total = Index()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes and the like, in files that test for them
        for path in paths:
            total.add(index_file(path, table))
    return total


# ---------------------------------------------------------------- the same on a cluster


def is_shared(array: np.ndarray) -> bool:
    """Whether the array lies in memory that other processes map too (Linux: see proc_pid_maps(5))."""
    address = array.__array_interface__["data"][0]
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        bounds, permissions, *_ = line.split()
        start, end = (int(bound, 16) for bound in bounds.split("-"))
        if start <= address < end:
            return permissions.endswith("s")
    return False


@ray.remote(num_cpus=1, num_returns=2)
def index_chunk(paths: list[str], table: np.ndarray) -> tuple[Index, Work]:
    assert not table.flags.writeable, "the shared table must be read-only"
    started = time.perf_counter()
    index = index_files(paths, table)
    seconds = time.perf_counter() - started
    node = ray.get_runtime_context().get_node_id()
    return index, Work(node, os.getpid(), len(paths), seconds, is_shared(table))


@ray.remote(num_cpus=1)
class Aggregator:
    """Adds up the indexes of the chunks, in whatever order they come."""

    def __init__(self) -> None:
        self.total = Index()

    def add(self, index: Index) -> int:
        self.total.add(index)
        return self.total.counts["files"]

    def result(self) -> Index:
        return self.total


def make_chunks(paths: list[str]) -> list[list[str]]:
    """Groups of files of about equal size, the heaviest files first."""
    by_size = sorted(paths, key=os.path.getsize, reverse=True)
    count = max(1, sum(map(os.path.getsize, paths)) // CHUNK_BYTES)
    return [by_size[start::count] for start in range(count)]


def index_on_cluster(paths: list[str], table: np.ndarray) -> tuple[Index, list[Work]]:
    shared_table = ray.put(table)
    aggregator = Aggregator.remote()
    chunks = [index_chunk.remote(chunk, shared_table) for chunk in make_chunks(paths)]
    pending = [aggregator.add.remote(index) for index, _ in chunks]
    while pending:
        _, pending = ray.wait(pending, num_returns=min(10, len(pending)), timeout=5)
        print(f"  {len(chunks) - len(pending)} of {len(chunks)} chunks; {alive_nodes()} nodes", flush=True)
    return ray.get(aggregator.result.remote()), ray.get([work for _, work in chunks])


def alive_nodes() -> int:
    return sum(node["Alive"] for node in ray.nodes())


# ---------------------------------------------------------------- reporting


def print_work(work: list[Work]) -> None:
    print("\nwho did it:")
    by_process: defaultdict[tuple[str, int], list[Work]] = defaultdict(list)
    for one in work:
        by_process[one.node, one.pid].append(one)
    for (node, pid), items in sorted(by_process.items()):
        files, seconds = sum(item.files for item in items), sum(item.seconds for item in items)
        print(f"  node {node[:12]} pid {pid:7}: {len(items):3} chunks, {files:4} files, {seconds:5.1f} s")


def print_summary(index: Index) -> None:
    print("\nthe standard library:")
    for name, count in index.counts.most_common():
        print(f"  {count:12,} {name}")
    print(f"  {len(index.words):12,} different words, {index.words.total():,} in all; score {index.score:,}")
    imported = ", ".join(f"{name} ({count})" for name, count in index.imports.most_common(8))
    print(f"  imported most: {imported}")


def main() -> int:
    arguments = argparse.ArgumentParser(description="Indexes the standard library on a cluster.")
    arguments.add_argument("--limit", type=int, default=None, help="index only so many files")
    limit = arguments.parse_args().limit

    paths = standard_library()[:limit]
    table = make_table()
    print(f"{len(paths)} files; a table of {table.nbytes >> 20} MiB", flush=True)
    ray.init()

    started = time.perf_counter()
    index, work = index_on_cluster(paths, table)
    on_cluster_s = time.perf_counter() - started
    print_work(work)
    print_summary(index)

    started = time.perf_counter()
    expected = index_files(paths, table)
    alone_s = time.perf_counter() - started
    same = index == expected
    shared = all(one.table_is_shared for one in work)
    print(f"\n{on_cluster_s:.1f} s on the cluster, new nodes included; {alone_s:.1f} s in one process")
    print(f"the table was {'read in place by every task' if shared else 'COPIED'}")
    print(f"the results are {'equal' if same else 'DIFFERENT'}")
    return 0 if same and shared else 1


if __name__ == "__main__":
    sys.exit(main())
