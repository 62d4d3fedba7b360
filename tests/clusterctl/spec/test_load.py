"""The strict reading of cluster specs: every problem with its line, column, path and the nearest valid
name."""

from __future__ import annotations

import pathlib

import pytest

from clusterctl.errors import ExitCode, NotFound, SpecError
from clusterctl.providers.local.config import LocalProvider
from clusterctl.spec.load import cluster_limit, load_file, load_text, read_text, worker_limit

GOOD = """\
cluster_name: c
provider: {type: local}
head_node_type: head
available_node_types:
  head: {resources: {CPU: 1}}
  worker: {resources: {CPU: 1}, min_workers: 1, max_workers: 3}
"""


def problems(text: str, **environ: str) -> list[tuple[int, int, str]]:
    spec, found = read_text(text, environ)
    assert (spec is None) == bool(found)
    return [(p.line, p.column, p.render("f").split(": ", 1)[1]) for p in found]


def with_line(line: str) -> str:
    return GOOD + line + "\n"


def test_a_good_spec_is_complete() -> None:
    spec = load_text(GOOD)
    assert spec.cluster_name == "c"
    assert spec.available_node_types["worker"].min_workers == 1
    assert spec.idle_timeout_minutes == 5.0
    assert worker_limit(spec, "worker") == 3
    assert worker_limit(spec, "head") == 0
    assert cluster_limit(spec) == 3


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("max_worker: 2", 1, "max_worker: unknown key 'max_worker'; did you mean 'max_workers'?"),
        ("min_workers: 2", 1, "misplaced key 'min_workers'; it belongs in available_node_types.<name>"),
        ("max_workers: two", 14, "max_workers: expected a whole number, got the text 'two'"),
        ("max_workers: -1", 14, "max_workers: expected a whole number, at least 0, got the number '-1'"),
        ("max_workers: true", 14, "max_workers: expected a whole number, got the boolean 'true'"),
        ("upscaling_speed: 0", 18, "upscaling_speed: expected a number, more than 0, got the number '0'"),
        ("upscaling_speed: .inf", 18, "upscaling_speed: expected a number from -2^63 to 2^63"),
        ("idle_timeout_minutes: [5]", 23, "idle_timeout_minutes: expected a number, got a list"),
        ("setup_commands: pip list", 17, "setup_commands: expected a list, got the text 'pip list'"),
        ("setup_commands: [a, 3]", 21, 'setup_commands[1]: expected text (write it in quotes: "3")'),
        ("file_mounts: {a: 1}", 18, 'file_mounts.a: expected text (write it in quotes: "1")'),
        ("cluster_name: d", 1, "cluster_name: duplicate key 'cluster_name'; it is first given on line 1"),
        ("ports: {api: 70000}", 14, "ports.api: expected a whole number, at most 65535"),
        ("ports: {apy: 1}", 9, "ports.apy: unknown key 'apy'; did you mean 'api'?"),
        (
            "docker: {image: x}",
            1,
            "docker: machines of provider type local are processes of this host and run no",
        ),
        ("max_workers: 0", 14, "the types' min_workers are 1 together, above max_workers 0"),
        ("head_start_ray_commands: ['ray start --port=x']", 27, "head_start_ray_commands[0]: ray start: "),
    ],
)
def test_a_wrong_line_is_named_with_its_place(line: str, column: int, message: str) -> None:
    ((at_line, at_column, text),) = problems(with_line(line))
    assert (at_line, at_column) == (7, column)
    assert message in text


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        (
            "type: local",
            "type: azure, region: x",
            (2, 18),
            "provider type 'azure' is not available in this version",
        ),
        ("type: local", "rot: /x", (2, 11), "the key 'type' is missing"),
        ("head_node_type: head", "head_node_type: hed", (3, 17), "there is no node type 'hed'"),
        ("cluster_name: c", "cluster_name: my cluster", (1, 15), "'my cluster' is not a valid name"),
        ("cluster_name: c\n", "", (1, 1), "the key 'cluster_name' is missing"),
        ("min_workers: 1", "min_workers: 9", (6, 46), "min_workers 9 is above max_workers 3"),
        ("min_workers: 1", "node_config: {capcity: 1}", (6, 47), "did you mean 'capacity'?"),
        (
            "min_workers: 1",
            "setup_commands: []",
            (6, 33),
            "misplaced key 'setup_commands'; it belongs in the top",
        ),
        ("  worker: {", "  wor ker: {", (6, 3), "'wor ker' is not a valid name"),
    ],
)
def test_a_wrong_part_is_named_with_its_place(
    old: str, new: str, place: tuple[int, int], message: str
) -> None:
    found = problems(GOOD.replace(old, new, 1))
    assert [f for f in found if f[:2] == place and message in f[2]], found


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    found = problems(GOOD.replace("c\n", "c c\n", 1) + "max_worker: 1\nupscaling_speed: x\n")
    assert [line for line, _, _ in found] == [1, 7, 8]


@pytest.mark.parametrize("text", ["", "a: [", "\t", "a: b: c", "[]", "3", "a: &x *y"])
def test_what_is_no_spec_is_told_with_a_place(text: str) -> None:
    found = problems(text)
    assert found
    assert all(line >= 1 and column >= 1 for line, column, _ in found)


def test_environment_variables_are_expanded_where_allowed() -> None:
    text = GOOD.replace("{type: local}", "{type: local, root: '${BASE}/${SUB:-m}'}")
    text += "setup_commands: ['echo ${NOT_OURS}']\nfile_mounts: {x: '$${HOME}'}\n"
    spec, found = read_text(text, {"BASE": "/b"})
    assert not found
    assert spec is not None
    assert spec.provider == LocalProvider(root="/b/m")
    assert spec.setup_commands == ["echo ${NOT_OURS}"]
    assert spec.file_mounts == {"x": "${HOME}"}


def test_an_unset_variable_is_a_problem_at_its_place() -> None:
    text = GOOD.replace("{type: local}", "{type: local, root: '${BASE}'}")
    ((line, column, message),) = problems(text)
    assert (line, column) == (2, 31)
    assert "BASE is not set" in message


def test_anchors_and_merge_keys() -> None:
    text = GOOD.replace(
        "  worker: {resources: {CPU: 1}, min_workers: 1, max_workers: 3}",
        "  worker: &w {resources: {CPU: 1}, min_workers: 1, max_workers: 3}\n"
        "  second: {<<: *w, min_workers: 2}",
    )
    spec = load_text(text)
    assert spec.available_node_types["second"].min_workers == 2
    assert spec.available_node_types["second"].max_workers == 3


def test_scientific_notation_is_a_number() -> None:
    spec = load_text(GOOD.replace("CPU: 1}}\n  worker", "CPU: 1, memory: 8e9}}\n  worker"))
    assert spec.available_node_types["head"].resources["memory"] == 8e9


def test_files() -> None:
    with pytest.raises(NotFound) as missing:
        load_file("/nowhere/x.yaml")
    assert missing.value.exit_code is ExitCode.NOT_FOUND
    with pytest.raises(SpecError):
        load_file("/")


@pytest.mark.parametrize("path", sorted(pathlib.Path("cluster-configs").glob("*.yaml")), ids=lambda p: p.name)
def test_every_shipped_example_loads(path: pathlib.Path) -> None:
    spec = load_file(str(path), {})
    assert spec.cluster_name == path.stem


def test_what_is_no_text_is_told(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SpecError, match="Is a directory"):
        load_file(str(tmp_path))
    (tmp_path / "bytes.yaml").write_bytes(b"cluster_name: \x8c")
    with pytest.raises(SpecError, match="byte 14 is not UTF-8"):
        load_file(str(tmp_path / "bytes.yaml"))


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        ("ports:\n\tapi: 1", (8, 1), "indented by spaces, not by tabs"),
        ("metadata: {a: '\0'}", (7, 16), "the character 0x00 is in it"),
        ("metadata: {a: " + "[" * 150 + "]" * 150 + "}", (7, 64), "more than 100 levels deep"),
        ("metadata: {a: " + "[" * 9000 + "]" * 9000 + "}", (1, 1), "more than 100 levels deep"),
        ("metadata: {a: &a [*a]}", (7, 15), "it contains itself"),
        ("metadata: &a {b: *a}", (7, 11), "it contains itself"),
        ("metadata: !odd {b: c}", (7, 11), "the tag !odd means nothing here"),
        ("metadata: {b: !!timestamp c}", (7, 15), "expected "),
        ("metadata: {b: !!bool c}", (7, 15), "expected "),
        ("metadata: {<<: c}", (7, 16), "<< takes mappings, got the text 'c'"),
        ("setup_commands:", (7, 16), "expected a list, got nothing; write [], or remove the key"),
        ("file_mounts:", (7, 13), "expected a mapping, got nothing; write {}, or remove the key"),
        ("setup_commands: [echo a: b]", (7, 18), "expected text (with ': ' in it, in quotes), got a mapping"),
        ("max_workers: 99999999999999999999", (7, 14), "expected a number from -2^63 to 2^63"),
        (
            r'setup_commands: ["a\UFFFFFFFF"]',
            (7, 22),
            "this is not YAML: an escape that stands for no character",
        ),
        (
            r'setup_commands: ["a\U00110000"]',
            (7, 22),
            "this is not YAML: an escape that stands for no character",
        ),
        (r'setup_commands: ["a\ud800"]', (7, 18), "an escape in it stands for half a character"),
        ("upscaling_speed: " + "9" * 400, (7, 18), "expected a number from -2^63 to 2^63"),
    ],
)
def test_odd_yaml_is_told_with_a_place(line: str, place: tuple[int, int], message: str) -> None:
    found = problems(with_line(line))
    assert found[0][:2] == place
    assert message in found[0][2]


def test_aliases_do_not_make_a_small_file_large() -> None:
    lines = ["metadata:", "  a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 12)]
    ((line, _, message), *_) = problems(with_line("\n".join(lines)))
    assert line > 8
    assert "parts, through its aliases" in message


def test_merge_keys_go_everywhere() -> None:
    text = GOOD.replace("{type: local}", "{<<: [{type: local}, {type: aws, root: /x}], root: /y}")
    assert load_text(text).provider == LocalProvider(root="/y")


def test_a_resource_that_is_almost_one_of_rays_is_named() -> None:
    warnings: list[str] = []
    load_text(GOOD.replace("{CPU: 1}}\n  w", "{cpu: 1}}\n  w"), on_warning=warnings.append)
    ((text),) = warnings
    assert text.startswith("<spec>:5:")
    assert text.endswith("did you mean 'CPU'?")


def test_a_spec_without_a_provider_lacks_nothing_else() -> None:
    assert [text for *_, text in problems("cluster_name: c\n")] == ["the key 'provider' is missing"]


@pytest.mark.parametrize("version", [">=2", "2.60 ", "latest", "2.60;x"])
def test_a_version_of_ray_is_one(version: str) -> None:
    text = (
        f"cluster_name: c\nprovider: {{type: ssh, head: h}}\nruntime: {{kind: ray, version: '{version}'}}\n"
    )
    ((line, _, message),) = problems(text)
    assert line == 3
    assert "is not a version, such as 2.60.0" in message


def test_what_is_free_holds_what_every_platform_can_take() -> None:
    spec = load_text(
        with_line("metadata: {since: 2020-01-31, at: 2020-01-31T10:00:00Z, n: 1.5, no: null, yes: on}")
    )
    assert spec.metadata == {
        "since": "2020-01-31",
        "at": "2020-01-31T10:00:00Z",
        "n": 1.5,
        "no": None,
        "yes": True,
    }
    for odd in ("!!binary aGk=", ".nan", "9" * 30):
        ((line, column, _),) = problems(with_line(f"metadata: {{a: {odd}}}"))
        assert (line, column) == (7, 15)
