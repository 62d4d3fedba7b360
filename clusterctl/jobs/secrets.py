"""Keeps credentials out of packages: folders that must not travel as a whole, and files that hold secrets. Pure but for
the look at the home folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from clusterctl.errors import UsageProblem
from runtime._packages import ignore
from runtime._packages.archive import Entry

PATTERNS = (
    ".ssh",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    "application_default_credentials.json",
    ".kube",
    ".docker/config.json",
    ".oci",
    ".boto",
    ".databrickscfg",
    ".clusterctl",
    ".env",
    ".env.*",
    "!.env.example",
    "!.env.sample",
    "!.env.template",
    ".netrc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".pypirc",
    ".npmrc",
    ".vault-token",
    ".cache/huggingface/token",
    ".kaggle",
)
"""Well-known places of secrets, in .gitignore's language."""


def refuse_home(root: str) -> None:
    """Refuses to package the home folder, or a folder that contains it.

    Raises:
        UsageProblem: `root` (absolute) is such a folder.
    """
    real, home = os.path.realpath(root), os.path.realpath(os.path.expanduser("~"))
    if real == os.sep or os.path.commonpath([real, home]) == real:
        what = "the root folder" if real == os.sep else f"{root}, your home folder"
        if real not in (os.sep, home):
            what = f"{root}, which contains your home folder"
        raise UsageProblem(
            f"{what}, would travel to the cluster with everything in it",
            "Put the program into a folder of its own, or name a folder with --working-dir.",
        )


def without_secrets(entries: Sequence[Entry], excludes: Sequence[str] = ()) -> tuple[list[Entry], list[str]]:
    """Splits a manifest into what may travel and the paths of likely secrets.

    Args:
        excludes: patterns of the user, which come after ours: `!.env` lets `.env` travel.
    """
    rules = ignore.parse("\n".join([*PATTERNS, *excludes]))

    def is_secret(path: str) -> bool:
        parts = path.split("/")
        return any(
            ignore.ignored("/".join(parts[:depth]), depth < len(parts), rules)
            for depth in range(1, len(parts) + 1)
        )

    secrets = [entry.path for entry in entries if is_secret(entry.path)]
    left_out = set(secrets)
    return [entry for entry in entries if entry.path not in left_out], secrets
