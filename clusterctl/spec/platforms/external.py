"""`provider: {type: external}`: a provider that is not part of this package."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import Meta, field

from ..kinds import Struct

CLASS_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class ExternalProvider(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="external"
):
    """A provider of your own: docs/adding-a-provider.md says what it must do."""

    class_path: Annotated[
        str,
        Meta(
            description="The provider's class, as package.module:Class. Python must be able to import it here."
        ),
    ] = field(name="class")
    config: Annotated[dict[str, Any], Meta(description="The provider's own settings.")] = {}
