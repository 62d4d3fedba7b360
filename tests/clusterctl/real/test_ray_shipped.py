"""What the real Ray's package has for clusters: its options and its files are all understood."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from clusterctl.errors import ExitCode
from clusterctl.spec.load import load_file, load_text, read_text
from clusterctl.spec.ray_start import OPTIONS
from tests.clusterctl.cli import Cli
from tests.testbed import real_ray

pytestmark = pytest.mark.timeout(400)  # the first test may install Ray


def said_by_ray(program: str) -> str:
    """The last line that a program prints which runs beside the real Ray."""
    try:
        python = real_ray.python()
    except real_ray.Missing as reason:
        pytest.skip(str(reason))
    ran = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    return ran.stdout.splitlines()[-1]


def test_every_option_of_ray_start_is_in_the_table() -> None:
    program = (
        "import json; from ray.scripts.scripts import start\n"
        "print(json.dumps([[o, p.is_flag] for p in start.params for o in p.opts]))"
    )
    found = dict(json.loads(said_by_ray(program)))
    assert set(found) <= set(OPTIONS)
    flags = {name for name, is_flag in found.items() if is_flag or name in ("-v", "--verbose")}
    assert flags == {name for name, option in OPTIONS.items() if option.is_flag} - {"-vv"}


def test_its_files_load() -> None:
    """One file per platform, with everything that a cluster has by default."""
    folder = Path(said_by_ray("import os, ray.autoscaler as a; print(os.path.dirname(a.__file__))"))
    for platform in ("aws", "gcp"):
        assert load_file(str(folder / platform / "defaults.yaml"), {}).max_workers == 2
    machines = "provider: {type: local, head_ip: 10.0.0.1, worker_ips: [10.0.0.2]}\n"
    spec = load_text((folder / "local" / "defaults.yaml").read_text() + machines)
    assert spec.available_node_types["worker"].min_workers == 1


def shipped() -> dict[str, Path]:
    """The cluster files in Ray's package, by their platform."""
    folder = Path(said_by_ray("import os, ray.autoscaler as a; print(os.path.dirname(a.__file__))"))
    return {path.parent.name: path for path in folder.rglob("*.yaml")}


@pytest.mark.parametrize("runtime", ["", "runtime: {kind: ray}\n"], ids=["engine", "ray"])
@pytest.mark.parametrize("platform", ["aws", "gcp"])
def test_its_files_are_checked_and_planned(
    platform: str, runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without credentials: what would be made is shown, and what is not done is named by line."""
    nowhere = {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true"}
    for name, value in nowhere.items():
        monkeypatch.setenv(name, value)
    cli = Cli(tmp_path)
    file = tmp_path / "cluster.yaml"
    text = shipped()[platform].read_text() + "\n" + runtime
    file.write_text(text)
    checked = cli.run("check", "--offline", str(file))
    assert checked.status == 0, checked.err
    warned = re.findall(r"^warning: .*?cluster.yaml:(\d+):\d+: (\w+)\[\d\]: (.*)", checked.err, re.MULTILINE)
    at = {key: [int(line) for line, of, _ in warned if of == key] for _, key, _ in warned}
    lines = text.splitlines()
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        for line in at.get(key, ()):
            assert "ray start" in "".join(lines[line - 1 : line + 3]), checked.err
        assert (key in at) == (not runtime), "Ray's own start commands are used as they are"
    assert any("it installs Ray" in words for _, _, words in warned) == (not runtime)

    planned = cli.run("up", "--dry-run", str(file))
    assert planned.status == ExitCode.DENIED
    assert "create the head's machine" in planned.out
    assert re.search(r"^ *ray.head.default +head +1 +1$", planned.out, re.MULTILINE)
    assert "it would not get so far" in planned.err
    assert "redentials" in planned.err
    assert "Traceback" not in checked.err + planned.err


def test_its_files_of_other_platforms_are_refused_by_line() -> None:
    refused = {platform: path for platform, path in shipped().items() if platform not in ("aws", "gcp")}
    assert {"azure", "vsphere", "local"} <= set(refused)
    for platform, path in refused.items():
        text = path.read_text()
        _, problems = read_text(text, {})
        said = {(problem.line, problem.message) for problem in problems if problem.is_fatal}
        if platform == "local":  # a part of a file: machines have to be added
            assert [message for _, message in said] == ["the key 'provider' is missing"]
            continue
        available = "aws, external, gcp, local, ssh"
        words = f"provider type '{platform}' is not available in this version; available: {available}"
        (line,) = [n for n, text in enumerate(text.splitlines(), 1) if text.strip() == f"type: {platform}"]
        assert (line, words) in said


ELSEWHERE = {"location", "namespace", "resource_group", "subnet_id", "subscription_id"}
"""Keys of `provider` that only other platforms of Ray have."""
ELSEWHERE_TOO = ("autoscaler_", "msi_")
"""What more of them begin with."""
OF_ONE = {"aws": {"cloudwatch", "security_group"}, "gcp": {"gcp_credentials", "project_id"}}
OF_LOCAL = {"head_ip", "worker_ips"}


@pytest.mark.parametrize("platform", ["aws", "gcp"])
def test_every_key_of_its_schema_is_known(platform: str) -> None:
    """Each is read, translated or refused by name: none is called unknown."""
    folder = Path(said_by_ray("import os, ray.autoscaler as a; print(os.path.dirname(a.__file__))"))
    schema = json.loads((folder / "ray-schema.json").read_text())["properties"]
    others = set().union(*(keys for name, keys in OF_ONE.items() if name != platform))
    provider = {
        key
        for key in schema["provider"]["properties"]
        if key not in ELSEWHERE | OF_LOCAL | others | {"tags"} and not key.startswith(ELSEWHERE_TOO)
    }
    node_type = next(iter(schema["available_node_types"]["patternProperties"].values()))
    places = {
        "{}": set(schema) - {"cluster_name", "provider"},
        "auth: {{{}}}": set(schema["auth"]["properties"]),
        "docker: {{{}}}": set(schema["docker"]["properties"]),
        "available_node_types: {{w: {{{}}}}}": set(node_type["properties"]),
        "provider: {{type: PLATFORM, region: r, {}}}": provider - {"type", "region"},
    }
    unknown = {}
    for place, keys in places.items():
        for key in keys:
            text = "cluster_name: c\n" + place.format(f"{key}: !odd x").replace("PLATFORM", platform)
            if "provider" not in place:
                text += f"\nprovider: {{type: {platform}, region: r}}"
            _, found = read_text(text, {})
            said = [problem.message for problem in found if problem.path[-1:] == (key,)]
            if any("unknown key" in message or "misplaced" in message for message in said):
                unknown[place, key] = said
    assert unknown == {}
