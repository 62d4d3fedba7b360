"""Errors, their exit statuses, and that every lower error is translated."""

from __future__ import annotations

import pytest

from autoscaler import provider
from clusterctl import errors
from clusterctl.errors import CliError, ExitCode, from_provider, process_status


def tree(base: type[CliError]) -> list[type[CliError]]:
    return [base, *(cls for child in base.__subclasses__() for cls in tree(child))]


def test_the_docstring_tells_every_status() -> None:
    assert errors.__doc__ is not None
    for cls in tree(CliError):
        line = next(line for line in errors.__doc__.splitlines() if line.split()[:1] == [cls.__name__])
        assert int(line.split()[1]) == cls.exit_code
    assert {cls.exit_code for cls in tree(CliError)} == set(ExitCode) - {ExitCode.OK}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (provider.Capacity("x"), ExitCode.FAILURE),
        (provider.Quota("x"), ExitCode.FAILURE),
        (provider.Auth("x"), ExitCode.DENIED),
        (provider.Config("x"), ExitCode.USAGE),
        (provider.NotFound("x"), ExitCode.NOT_FOUND),
        (provider.Transient("x"), ExitCode.FAILURE),
        (provider.SetupError("step", "x"), ExitCode.FAILURE),
    ],
)
def test_every_provider_error_is_translated(error: Exception, expected: ExitCode) -> None:
    translated = from_provider(error)
    assert translated.exit_code is expected
    assert "x" in str(translated)


def test_no_provider_error_is_forgotten() -> None:
    for cls in provider.ProviderError.__subclasses__():
        assert from_provider(cls("x"))


@pytest.mark.parametrize(("returncode", "status"), [(0, 0), (3, 3), (-9, 137), (-15, 143)])
def test_process_status(returncode: int, status: int) -> None:
    assert process_status(returncode) == status
