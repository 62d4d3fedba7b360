"""The configuration of a job's logging."""

from __future__ import annotations

import pytest

import runtime


def test_the_defaults() -> None:
    config = runtime.LoggingConfig()
    assert config.to_dict() == {"encoding": "TEXT", "log_level": "INFO", "additional_log_standard_attrs": []}


def test_there_and_back() -> None:
    config = runtime.LoggingConfig("JSON", "DEBUG", ["name", "thread"])
    assert runtime.LoggingConfig.from_dict({**config.to_dict(), "of_a_later_version": 1}) == config


def test_an_unknown_encoding() -> None:
    with pytest.raises(ValueError, match="Invalid encoding type: XML"):
        runtime.LoggingConfig(encoding="XML")


def test_an_attribute_that_no_record_has() -> None:
    with pytest.raises(ValueError, match="Unknown python logging standard attribute: colour"):
        runtime.LoggingConfig(additional_log_standard_attrs=["name", "colour"])
