from __future__ import annotations

import pytest

from runtime.rllib.utils.annotations import OverrideToImplementCustomLogic, is_overridden, override
from runtime.rllib.utils.deprecation import Deprecated, deprecation_warning
from runtime.util.annotations import RayDeprecationWarning


class Base:
    @OverrideToImplementCustomLogic
    def hook(self) -> int:
        return 1


class Derived(Base):
    @override(Base)
    def hook(self) -> int:
        return 2


def test_overridden_methods_are_told_from_marked_ones() -> None:
    assert not is_overridden(Base().hook)
    assert is_overridden(Derived().hook)


def test_a_method_that_overrides_nothing_is_an_error() -> None:
    with pytest.raises(NameError, match="hoook"):

        class Wrong(Base):
            @override(Base)
            def hoook(self) -> int:
                return 3


def test_deprecated_functions_and_classes_warn_or_raise() -> None:
    @Deprecated(new="new_name")
    def old_name() -> int:
        return 4

    @Deprecated(old="Old", error=True)
    class Old:
        pass

    with pytest.warns(RayDeprecationWarning, match="Use `new_name`"):
        assert old_name() == 4
    with pytest.raises(ValueError, match="Old"):
        Old()
    with pytest.raises(KeyError, match="gone"):
        deprecation_warning("gone", error=KeyError)
