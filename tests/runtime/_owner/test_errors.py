"""Every failure that the ownership core names has an error for its readers."""

from __future__ import annotations

import inspect
import pickle

import pytest

from runtime import exceptions
from runtime._owner.errors import decode_address, encode_address, error_of
from runtime._ownership import failures
from runtime._wire.messages.base import WorkerAddress

US, OWNER = (WorkerAddress(letter * 28, b"n" * 28, "path") for letter in (b"u", b"o"))
KINDS = [
    kind
    for _, kind in inspect.getmembers(failures, inspect.isclass)
    if issubclass(kind, failures.ObjectFailure) and kind is not failures.ObjectFailure
]


def no_site(_object_id: bytes) -> str:
    return ""


def test_errors_tell_where_the_reference_was_made() -> None:
    failure = failures.NotRebuilt(b"x" * 28, reason="OBJECT_UNRECONSTRUCTABLE_PUT")
    for known in (failure, failures.Lost(b"x" * 28)):
        error = error_of(known, US, lambda object_id: f"(put object)  | file.py:f:{len(object_id)}")
        assert "The ObjectRef was created at: (put object) \n  file.py:f:28\n" in str(error)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("owner", [None, OWNER], ids=["ours", "borrowed"])
def test_the_translation_is_total(kind: type[failures.ObjectFailure], owner: WorkerAddress | None) -> None:
    more = {"reason": "OBJECT_UNRECONSTRUCTABLE_PUT"} if kind is failures.NotRebuilt else {}
    error = error_of(kind(b"x" * 28, owner, **more), US, no_site)
    assert isinstance(error, exceptions.ObjectLostError)
    assert error.object_ref_hex == (b"x" * 28).hex()
    assert error.owner_address == encode_address(owner or US)
    assert type(pickle.loads(pickle.dumps(error))) is type(error)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (failures.Freed(b"x" * 28), exceptions.ObjectFreedError),
        (failures.Lost(b"x" * 28), exceptions.ObjectLostError),
        (failures.OwnerDied(b"x" * 28), exceptions.OwnerDiedError),
        (failures.NotRebuilt(b"x" * 28, reason="PUT"), exceptions.ObjectReconstructionFailedError),
    ],
)
def test_errors_have_rays_names(failure: failures.ObjectFailure, error: type) -> None:
    assert type(error_of(failure, US, no_site)) is error


def test_addresses_survive() -> None:
    assert decode_address(encode_address(OWNER)) == OWNER
