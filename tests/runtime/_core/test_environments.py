"""Runtime environments as data."""

from __future__ import annotations

from typing import Any

import pytest

from runtime._core.environments import (
    EnvironmentConflict,
    canonical,
    expand,
    inherit,
    of_driver,
    package_key,
    package_uri,
    parse_package_uri,
)

DIGEST = "0123456789abcdef" * 4


def test_equal_environments_are_equal_text() -> None:
    assert canonical({"a": 1, "b": {"x": 1, "y": 2}}) == canonical({"b": {"y": 2, "x": 1}, "a": 1})
    assert canonical({}) == ""


@pytest.mark.parametrize(
    ("parent", "child", "expected"),
    [
        ({}, {}, {}),
        ({"working_dir": "p"}, {}, {"working_dir": "p"}),
        ({"working_dir": "p"}, {"working_dir": "c"}, {"working_dir": "c"}),
        ({"env_vars": {"A": "p", "B": "p"}}, {"env_vars": {"A": "c"}}, {"env_vars": {"A": "c", "B": "p"}}),
        ({"env_vars": {"A": "p"}}, {"pip": {}}, {"env_vars": {"A": "p"}, "pip": {}}),
        ({"pip": {"packages": ["p"]}}, {"uv": {"packages": ["c"]}}, {"uv": {"packages": ["c"]}}),
        ({"conda": "p"}, {"pip": {"packages": ["c"]}}, {"pip": {"packages": ["c"]}}),
        ({"pip": {"packages": ["p"]}}, {"env_vars": {}}, {"pip": {"packages": ["p"]}, "env_vars": {}}),
        ({"preload": ["p", "b"]}, {"preload": ["c", "b"]}, {"preload": ["p", "b", "c"]}),
        ({"preload": ["p"]}, {}, {"preload": ["p"]}),
    ],
)
def test_a_child_overrides_what_it_inherits(
    parent: dict[str, Any], child: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = canonical(parent), canonical(child)
    assert inherit(parent, child) == expected
    assert (canonical(parent), canonical(child)) == before


def test_a_driver_adds_to_its_job_and_contradicts_it_only_when_told() -> None:
    job = {"env_vars": {"A": "job"}, "working_dir": "w"}
    assert of_driver(job, {"env_vars": {"B": "driver"}}, False) == {
        "env_vars": {"A": "job", "B": "driver"},
        "working_dir": "w",
    }
    for own in ({"env_vars": {"A": "driver"}}, {"working_dir": "d"}):
        with pytest.raises(EnvironmentConflict, match=r"conflict.*RAY_OVERRIDE_JOB_RUNTIME_ENV=1"):
            of_driver(job, own, False)
    assert of_driver({"preload": ["j"]}, {"preload": ["d"]}, False) == {"preload": ["j", "d"]}
    assert of_driver(job, {"env_vars": {"A": "driver"}}, True)["env_vars"] == {"A": "driver"}
    assert of_driver(job, {"working_dir": "d"}, False, ["working_dir"])["working_dir"] == "d"


def test_references_to_variables_are_expanded_in_order() -> None:
    variables = {"A": "1", "B": "${A}:${OUTER}:${NONE}:$A:$NONE"}
    assert expand(variables, {"OUTER": "o", "A": "outer"}) == {"A": "1", "B": "1:o::1:$NONE"}


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz", "-thing-0.1-py3-none-any.whl", ".hook"])
def test_packages_are_known_by_their_content(suffix: str) -> None:
    assert parse_package_uri(package_uri(DIGEST, suffix)) == (package_key(DIGEST, suffix), DIGEST)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "s3://b/_ray_pkg_x.zip",
        "gcs://other.zip",
        f"gcs://_ray_pkg_{DIGEST}",
        f"gcs://../_ray_pkg_{DIGEST}.zip",
    ],
)
def test_other_uris_are_no_packages(uri: str) -> None:
    assert parse_package_uri(uri) is None
