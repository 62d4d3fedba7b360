"""docs/cli.md and docs/from-ray.md against the command line, docs/cluster-spec.md against the definition of specs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from clusterctl.app import app
from clusterctl.spec.schema import json_schema

DOCS = Path(__file__).parents[2] / "docs"
OTHERS_OPTIONS = {"--exclude", "--shm-size", "--rounds", "--help", "--install-completion"}
"""Named in the documents, of rsync, docker and a program of the user's; and those that each command has."""


def words(name: str) -> list[str]:
    """What a document has in backticks."""
    return re.findall(r"`([^`\n]+)`", (DOCS / name).read_text(encoding="utf-8"))


def commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that the help names, and its object."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


ROOT = typer.main.get_command(app)
ALL = dict(commands(ROOT))
SHOWN = [name for name, command in ALL.items() if not command.hidden]


def options(command: Any) -> set[str]:
    return {name for param in command.params for name in (*param.opts, *param.secondary_opts)}


def schema_keys() -> dict[str, set[str]]:
    """The keys of each table of a spec, by the table's place in it."""
    schema = json_schema()
    definitions = schema["$defs"]
    keys = {name: set(value.get("properties", {})) for name, value in definitions.items()}
    providers = [found for name, found in keys.items() if name.endswith("Provider")]
    return {
        "": keys["ClusterSpec"],
        "provider": set().union(*providers),
        "auth": keys["Auth"],
        "budgets": keys["Budgets"],
        "consolidation": keys["Consolidation"],
        "ports": keys["Ports"],
        "autostop": keys["Autostop"],
        "runtime": keys["EngineRuntime"] | keys["RayRuntime"],
        "docker": keys["Docker"],
        "node type": keys["NodeType"],
        "node_config": keys["LocalNodeConfig"] | keys["SshNodeConfig"],
    }


KEYS = schema_keys()


@pytest.mark.parametrize("name", SHOWN)
def test_every_command_is_described(name: str) -> None:
    text = " ".join(words("cli.md"))
    group, _, last = name.rpartition(" ")
    assert re.search(rf"\b{re.escape(name)}\b", text) or (
        group and re.search(rf"\b{group}\b.*\b{last}\b", text)
    )


@pytest.mark.parametrize("document", ["cli.md", "cluster-spec.md"])
def test_every_option_that_is_described_exists(document: str) -> None:
    known = set().union(*map(options, ALL.values())) | OTHERS_OPTIONS
    named = {option for word in words(document) for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", word)}
    assert named - known == set()


def test_the_table_of_up_has_options_of_up() -> None:
    rows = re.search(r"## up\n(.*?)\n## ", (DOCS / "cli.md").read_text(encoding="utf-8"), re.S)
    assert rows
    named = set(re.findall(r"^\| `(-[-a-z]+)", rows[1], re.M))
    assert named <= options(ALL["up"])
    described = set(re.findall(r"(?<![\w-])--[a-z-]+", rows[1])) | {"--yes", "--dry-run", "--cluster-name"}
    hidden = {"--no-config-cache"}
    assert {name for name in options(ALL["up"]) if name.startswith("--")} - hidden <= described


def test_the_commands_with_json_are_listed() -> None:
    line = re.search(r"^- `--json` prints JSON.*", (DOCS / "cli.md").read_text(encoding="utf-8"), re.M)
    assert line
    listed = set(re.findall(r"`([a-z][a-z -]+)`", line[0]))
    assert listed == {name for name in SHOWN if "--json" in options(ALL[name])}


@pytest.mark.parametrize(
    "word",
    ["up", "down", "attach", "exec", "submit", "monitor", "dashboard", "get-head-ip", "get-worker-ips"]
    + ["rsync-up", "rsync-down", "rsync_up", "rsync_down", "get_head_ip", "get_worker_ips", "status", "stack"]
    + [f"job {name}" for name in ("submit", "list", "status", "logs", "stop", "delete")],
)
def test_rays_words_are_commands(word: str) -> None:
    assert word in ALL


def test_rays_options_are_accepted_where_from_ray_says_so() -> None:
    same = re.search(r"\| `-y`, (.*?) \| the same \|", (DOCS / "from-ray.md").read_text(encoding="utf-8"))
    assert same
    named = set(re.findall(r"`(--[a-z-]+)`", same[1]))
    assert named
    assert named <= set().union(*map(options, ALL.values()))


@pytest.mark.parametrize("place", KEYS)
def test_every_key_is_described(place: str) -> None:
    """By its path, alone in the table of its own section, or in an example: `{idle_minutes: 30}`."""
    described = words("cluster-spec.md")
    in_examples = {key for word in described for key in re.findall(r"(\w+):", word)}
    paths = {path for word in described for path in re.findall(r"^[\w.]+", word)}
    named = in_examples | paths | {path.partition(".")[0] for path in paths}
    rays = {path.rpartition(".")[2] for path in words("from-ray.md")}  # start commands, the public key
    missing = {key for key in KEYS[place] if not {key, f"{place}.{key}"} & named}
    assert missing - rays <= {"class", "config"}, "these are in docs/adding-a-provider.md"


@pytest.mark.parametrize("place", sorted(set(KEYS) - {"", "node type", "node_config"}))
def test_every_path_that_is_described_exists(place: str) -> None:
    named = {
        match[1]
        for word in words("cluster-spec.md")
        if (match := re.match(rf"{place}\.(\w+)", word)) and "," not in word
    }
    assert named - KEYS[place] == set()
