"""`provider: {type: external}`: a provider that is not part of this package."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import Meta, field

from clusterctl.spec.kinds import ProviderConfig

CLASS_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class ExternalProvider(ProviderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="external"):
    """A provider of your own: docs/adding-a-provider.md says what it must do."""

    class_path: Annotated[
        str,
        Meta(
            description="The provider's class, as package.module:Class. Python must be able to import it here."
        ),
    ] = field(name="class")
    config: Annotated[dict[str, Any], Meta(description="The provider's own settings.")] = {}

    @property
    def place(self) -> tuple[str, ...]:
        return (self.class_path,)

    @property
    def may_have_secrets(self) -> bool:
        return bool(self.config)


CONFIG = ExternalProvider
