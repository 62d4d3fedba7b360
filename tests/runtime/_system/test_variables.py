"""Environment variables as typed settings."""

from __future__ import annotations

import logging
import pickle
import re

import pytest

from runtime._core.accelerators import HARDWARE
from runtime._system import settings, variables
from runtime._system.variables import Section, SettingError


@pytest.fixture
def section() -> Section:
    return Section("Title", "Introduction.")


def test_unset_and_empty_mean_the_default(section: Section) -> None:
    setting = section.whole("X", 3, "Effect.")
    assert setting.get({}) == 3
    assert setting.get({"X": ""}) == 3


def test_the_process_environment_is_read_with_each_call(
    section: Section, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = section.text("SOME_SETTING", "Effect.")
    monkeypatch.setenv("SOME_SETTING", "a")
    assert setting.get() == "a"
    monkeypatch.setenv("SOME_SETTING", "b")
    assert setting.get() == "b"


@pytest.mark.parametrize(
    ("text", "value"), [("7", 7), ("1e6", 1_000_000), ("-1", -1), (str(2**60 + 1), 2**60 + 1)]
)
def test_whole_numbers(section: Section, text: str, value: int) -> None:
    assert section.whole("X", 0, "Effect.", minimum=-1).get({"X": text}) == value


@pytest.mark.parametrize("text", ["many", "1.5", "-2", "inf", "nan"])
def test_what_is_no_whole_number(section: Section, text: str) -> None:
    with pytest.raises(SettingError):
        section.whole("X", 0, "Effect.", minimum=-1).get({"X": text})


def test_numbers_have_limits(section: Section) -> None:
    setting = section.number("X", 0.5, "Effect.", maximum=1.0)
    assert setting.get({"X": "0.75"}) == 0.75
    for text in ("1.01", "-0.1", "nan", "half"):
        with pytest.raises(SettingError, match="number from 0 to 1"):
            setting.get({"X": text})


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("true", True), ("YES", True), ("0", False), ("False", False), ("off", False)],
)
def test_flags(section: Section, text: str, value: bool) -> None:
    assert section.flag("X", "Effect.", default=not value).get({"X": text}) is value
    assert section.optional_flag("X", "Effect.", shown_default="").get({"X": text}) is value


def test_a_flag_may_be_neither(section: Section) -> None:
    assert section.optional_flag("X", "Effect.", shown_default="").get({}) is None
    with pytest.raises(SettingError, match="1 or 0"):
        section.flag("X", "Effect.", default=True).get({"X": "maybe"})


def test_optional_text_may_be_empty(section: Section) -> None:
    setting = section.optional_text("X", "Effect.", kind="ids", shown_default="all")
    assert setting.get({}) is None
    assert setting.get({"X": ""}) == ""


@pytest.mark.parametrize("text", ["{", "[]", "3"])
def test_json_objects(section: Section, text: str) -> None:
    setting = section.json_object("X", "Effect.")
    assert setting.get({"X": '{"a": 1}'}) == {"a": 1}
    with pytest.raises(SettingError, match="a JSON object"):
        setting.get({"X": text})


def test_patterns_and_log_levels(section: Section) -> None:
    pattern = section.pattern("X", "Effect.").get({"X": "^a"})
    assert pattern is not None
    assert pattern.search("ab")
    with pytest.raises(SettingError, match="a regular expression"):
        section.pattern("X", "Effect.").get({"X": "("})
    assert section.log_level("X", "Effect.").get({"X": "debug"}) == "DEBUG"
    with pytest.raises(SettingError, match="DEBUG, INFO"):
        section.log_level("X", "Effect.").get({"X": "loud"})


def test_aliases_are_read_in_order_and_named_in_errors(section: Section) -> None:
    setting = section.json_object("X", "Effect.", aliases=("Y", "Z"))
    assert setting.get({"Z": '{"a": 1}'}) == {"a": 1}
    assert setting.get({"X": '{"a": 0}', "Y": '{"a": 1}'}) == {"a": 0}
    with pytest.raises(SettingError) as caught:
        setting.get({"Y": "no"})
    assert caught.value.variable == "Y"


def test_a_system_config_stands_in_for_an_unset_variable(section: Section) -> None:
    setting = section.whole("RAY_some_bytes", 1, "Effect.")
    assert setting.system_config_name == "some_bytes"
    assert setting.get({}, {"some_bytes": "2"}) == 2
    assert setting.get({"RAY_some_bytes": "3"}, {"some_bytes": "2"}) == 3
    assert section.whole("RAY_SOME", 1, "Effect.").system_config_name == ""
    assert section.whole("some_bytes", 1, "Effect.").get({}, {"": "2"}) == 1


def test_errors_say_variable_value_and_what_it_must_be(section: Section) -> None:
    with pytest.raises(SettingError) as caught:
        section.whole("X", 0, "Effect.").get({"X": "many"})
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == "the environment variable X is 'many'; expected: whole number from 0"
    assert (error.variable, error.value) == ("X", "many")
    assert isinstance(error, ValueError)


def test_a_worker_goes_on_with_the_default(
    section: Section, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SOME_SETTING", "many")
    with caplog.at_level(logging.WARNING):
        assert section.whole("SOME_SETTING", 4, "Effect.").get_or_default() == 4
    assert "SOME_SETTING is 'many'" in caplog.text


def test_all_settings_of_sections_are_checked(section: Section) -> None:
    section.whole("X", 0, "Effect.")
    section.flag("Y", "Effect.", default=True)
    variables.check((section,), {"X": "1", "Y": "1"})
    with pytest.raises(SettingError, match="Y is"):
        variables.check((section,), {"X": "1", "Y": "maybe"})


def test_every_kind_of_accelerator_has_its_settings() -> None:
    assert set(settings.VISIBLE_DEVICES.members) == {kind.variable for kind in HARDWARE.values()}
    assert set(settings.KEEP_VISIBLE_DEVICES.members) == {kind.opt_out for kind in HARDWARE.values()}


def test_what_is_handed_to_the_processes_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_some_bytes", "2")
    monkeypatch.setenv("RAY_SOME", "3")
    handed = settings.system_config()
    assert handed["some_bytes"] == "2"
    assert not any(re.match("[A-Z]", name) for name in handed)
