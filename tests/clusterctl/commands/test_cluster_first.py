"""A cluster's YAML as the first word of a command."""

from __future__ import annotations

import pathlib

import pytest

from clusterctl.commands.cluster_first import reordered


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.yaml").write_text("")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("c.yaml ls", "--cluster c.yaml ls"),
        ("c.yaml ls -l", "--cluster c.yaml ls -l"),
        ("c.yaml --tmux ls", "--cluster c.yaml --tmux ls"),
        ("c.yaml ls --tmux --stop", "--cluster c.yaml --tmux --stop ls"),
        ("c.yaml ls -p 8265 --start", "--cluster c.yaml -p 8265 --start ls"),
        ("c.yaml ls --cluster-name other --start", "--cluster c.yaml --cluster-name other --start ls"),
        ("--cluster-name other c.yaml ls", "--cluster c.yaml --cluster-name other ls"),
        ("c.yaml ls --stop -l", "--cluster c.yaml ls --stop -l"),
        ("c.yaml job.py -- --rounds 3", "--cluster c.yaml job.py --rounds 3"),
        ("c.yaml", "--cluster c.yaml"),
        ("ls c.yaml", "ls c.yaml"),
        ("other.yaml ls", "other.yaml ls"),
        ("", ""),
    ],
)
def test_what_an_existing_file_in_front_means(words: str, meaning: str) -> None:
    assert reordered(words.split(), valued={"--cluster-name"}) == meaning.split()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("a ls", "--cluster a ls"),
        ("a ls --tmux", "--cluster a --tmux ls"),
        ("a", "--cluster a"),
        ("a -- job.py --rounds 3", "--cluster a -- job.py --rounds 3"),
        ("-f a job-1", "--cluster a -f job-1"),
        ("--node w1 a ls", "--cluster a --node w1 ls"),
        ("--node=w1 a ls", "--cluster a --node=w1 ls"),
        ("--node a ls", "--node a ls"),
        ("--no-wait c.yaml job.py", "--cluster c.yaml --no-wait job.py"),
        ("-- a ls", "-- a ls"),
        ("-c b a ls", "-c b a ls"),
        ("--cluster=b a ls", "--cluster=b a ls"),
        ("b a", "b a"),
    ],
)
def test_what_the_name_of_a_known_cluster_in_front_means(words: str, meaning: str) -> None:
    assert reordered(words.split(), {"a"}, {"--node"}) == meaning.split()
