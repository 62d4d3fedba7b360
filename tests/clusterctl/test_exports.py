"""The file in which a cluster is handed over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterctl import exports, home
from clusterctl.errors import NotFound, UsageProblem
from clusterctl.home import ClusterRecord, Home
from clusterctl.spec.load import load_text


def known(root: Path, key: str = "") -> tuple[Home, ClusterRecord]:
    """A state folder with a cluster of an SSH host."""
    there = Home(root)
    for folder in ("clusters", "locks"):
        (root / folder).mkdir(parents=True)
    file = root / "own.yaml"
    file.write_text(
        f"cluster_name: own\nprovider: {{type: ssh, head: h1}}\nauth: {{ssh_private_key: '{key}'}}\n"
    )
    record = home.new_record(there, load_text(file.read_text()), str(file))
    record.provider_settings |= {"owner": "1", "owner_name": "ann@here"}
    record.state, record.api_url = home.UP, "http://127.0.0.1:1"
    there.write(record)
    there.new_secret("own")
    folder = there.folder("own")
    (folder / "host_keys").mkdir()
    for name in (
        "ssh_key",
        "ssh_key.pub",
        "known_hosts",
        "let_in",
        "host_keys/i-1",
        "head.json",
        "logs/head-setup.log",
    ):
        (folder / name).write_text(f"{name} of ann\n")
    return there, record


def exported(there: Home, record: ClusterRecord, target: Path) -> str:
    target.write_bytes(exports.packed(there, record))
    return str(target)


def test_a_cluster_is_known_elsewhere_as_it_was_here(tmp_path: Path) -> None:
    ann, record = known(tmp_path / "ann")
    file = exported(ann, record, tmp_path / "file")
    bob = Home(tmp_path / "bob")
    imported = exports.unpack(bob, exports.read(file))
    assert bob.read("own") == imported
    assert bob.secret("own") == ann.secret("own")
    settings = imported.provider_settings
    assert settings == {**bob.provider_settings("own"), "owner": "1", "owner_name": "ann@here"}
    assert Path(imported.spec_file).read_text() == Path(record.spec_file).read_text()
    yaml = Path(imported.spec_file)
    imported.provider_settings, imported.spec_file = record.provider_settings, record.spec_file
    assert imported == record
    folder = bob.folder("own")
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert there == {
        *("cluster.json", "secret", "ssh_key", "ssh_key.pub", "known_hosts", "let_in", "host_keys/i-1")
    }
    private = [path for path in (*folder.rglob("*"), yaml) if path.is_file()]
    assert {path.stat().st_mode & 0o077 for path in private} == {0}


def test_nothing_that_is_known_is_overwritten(tmp_path: Path) -> None:
    ann, record = known(tmp_path / "ann")
    export = exports.read(exported(ann, record, tmp_path / "file"))
    bob, other = known(tmp_path / "bob")
    before = (bob.folder("own") / "cluster.json").read_bytes()
    with pytest.raises(UsageProblem, match="another cluster of this name is known here"):
        exports.unpack(bob, export)
    assert (bob.folder("own") / "cluster.json").read_bytes() == before
    with pytest.raises(UsageProblem, match="it is known here"):
        exports.unpack(ann, export)
    (bob.folder("own") / "cluster.json").unlink()
    (bob.folder("own") / "let_in").write_text("h9\n")
    exports.unpack(bob, export)
    assert (bob.folder("own") / "let_in").read_text() == "h9\nlet_in of ann\n", "h9 may still have a key"
    assert other.cluster_id != record.cluster_id


def test_the_operators_key_stays_even_where_it_is_in_the_folder(tmp_path: Path) -> None:
    ann, record = known(tmp_path / "ann", key=str(tmp_path / "ann" / "clusters" / "own" / "mine"))
    (ann.folder("own") / "mine").write_text("private")
    (ann.folder("own") / "link").symlink_to(tmp_path / "ann" / "own.yaml")
    names = set(exports.read(exported(ann, record, tmp_path / "file")).files)
    assert not names & {"mine", "link"}
    assert "ssh_key" in names


def test_a_cluster_without_its_secret_is_not_exported(tmp_path: Path) -> None:
    ann, record = known(tmp_path / "ann")
    (ann.folder("own") / "secret").unlink()
    with pytest.raises(NotFound, match="the secret of cluster 'own' is gone"):
        exports.packed(ann, record)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.update(version=2), "has version 2, and this clusterctl reads version 1"),
        (lambda data: data.update(files={"../../other": ""}), "'../../other' is not a file of a cluster"),
        (lambda data: data.update(files={"": ""}), "'' is not a file of a cluster"),
        (lambda data: data.update(files={"/etc/x": ""}), "'/etc/x' is not a file of a cluster"),
        (lambda data: data.update(files={"cluster.json": ""}), "'cluster.json' is not a file of a cluster"),
        (lambda data: data["record"].update(name="../up"), r"its name '\.\./up' is not valid"),
        (lambda data: data["record"].update(cluster_id="a/b"), "its name 'own' is not valid"),
        (lambda data: data.pop("record"), "is not an exported cluster"),
    ],
)
def test_what_is_no_export_is_refused(tmp_path: Path, change: object, words: str) -> None:
    ann, record = known(tmp_path / "ann")
    data = json.loads(exports.packed(ann, record))
    change(data)  # type: ignore[operator]
    (tmp_path / "file").write_text(json.dumps(data))
    with pytest.raises(UsageProblem, match=words):
        exports.read(str(tmp_path / "file"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="cannot be read: No such file"):
        exports.read(str(tmp_path / "nothing"))
