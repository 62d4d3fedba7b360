"""What the real Ray's package has for clusters: its options and its files are all understood."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from clusterctl.spec.load import load_file, load_text, read_text
from clusterctl.spec.ray_start import OPTIONS
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
