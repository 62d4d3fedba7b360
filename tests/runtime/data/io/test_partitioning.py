"""Values that the folders of a path encode."""

from __future__ import annotations

import pytest

from runtime.data.datasource import Partitioning, PartitionStyle, PathPartitionFilter, PathPartitionParser


def test_hive():
    parser = PathPartitionParser.of(PartitionStyle.HIVE, base_dir="foo/bar")
    assert parser("foo/bar/year=2022/month=01/test.txt") == {"year": "2022", "month": "01"}
    assert parser("foo/year=1/x") == {}
    assert parser("foo/barley/year=1/x") == {}


def test_types():
    parser = PathPartitionParser.of("hive", field_types={"year": int, "last": bool})
    assert parser("year=2022/last=false/a") == {"year": 2022, "last": False}
    with pytest.raises(ValueError, match="year='x' of year=x/a is no int"):
        parser("year=x/a")


def test_directories():
    parser = PathPartitionParser.of("dir", base_dir="s3://bucket/data/", field_names=["year", "month"])
    assert parser("bucket/data/2022/01/a.csv") == {"year": "2022", "month": "01"}
    with pytest.raises(ValueError, match=r"Expected 2 partition value\(s\) but found 3"):
        parser("bucket/data/2022/01/3/a.csv")
    with pytest.raises(ValueError, match="needs field_names"):
        Partitioning("dir")


def test_hive_with_names_refuses_others():
    with pytest.raises(ValueError, match="Expected the partition keys"):
        PathPartitionParser.of("hive", field_names=["year"])("month=1/a")


def test_filter():
    keep = PathPartitionFilter.of(lambda values: values["year"] == "2022")
    assert keep(["year=2022/a", "year=2023/b"]) == ["year=2022/a"]
