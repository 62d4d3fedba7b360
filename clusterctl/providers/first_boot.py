"""What a worker's machine in a cloud does when it boots, before anybody has entered it: nobody may ever come, for its
head may die first. The guard of its lease (`clusterctl/startup/lease_guard.py`) takes that back. Pure.
"""

from __future__ import annotations

import email
import shlex
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

from autoscaler.provider import Config

MINUTES = 30
_MARK = "# Until clusterctl has entered this machine"

_SCRIPT = f"""\
#!/bin/sh
{_MARK}: shut it down if that does not happen. `shutdown -c` takes it back.
shutdown -h +{MINUTES} || true
# It may have been entered before this ran.
for file in /root/.clusterctl-node/head_address /home/*/.clusterctl-node/head_address; do
    [ ! -e "$file" ] || shutdown -c || true
done
"""
_LET_IN = """\
# The head enters with a key of the cluster's own.
home=$(getent passwd {user} | cut -d: -f6)
if [ -n "$home" ] && ! grep -qsF {key} "$home/.ssh/authorized_keys"; then
    umask 077
    mkdir -p "$home/.ssh" && echo {key} >> "$home/.ssh/authorized_keys"
    chown -R {user}: "$home/.ssh"
fi
"""
_KINDS = {
    "#!": "x-shellscript",
    "#cloud-config": "cloud-config",
    "#cloud-boothook": "cloud-boothook",
    "#include-once": "x-include-once-url",
    "#include": "x-include-url",
    "#part-handler": "part-handler",
    "## template: jinja": "jinja2",
}
"""How the first line of user data begins, and what cloud-init calls such a part."""


def script(user: str = "", key: str = "") -> str:
    """The script.

    Args:
        user, key: whom to let in by which line for `authorized_keys`, if not by what the cloud itself brings.
    """
    return _SCRIPT + (_LET_IN.format(user=shlex.quote(user), key=shlex.quote(key)) if key else "")


def is_ours(text: str) -> bool:
    """Whether a text is such a script."""
    return _MARK in text


def with_user_data(given: str, ours: str) -> str:
    """User data for cloud-init that does both what the operator gave and what our script does.

    Raises:
        Config: cloud-init would not read what was given.
    """
    if not given or is_ours(given):
        return ours
    whole = MIMEMultipart(boundary="==clusterctl==")
    if given.lower().startswith(("content-type:", "mime-version:")):
        for part in email.message_from_string(given).walk():
            if not part.is_multipart():
                whole.attach(part)
    else:
        kind = next((kind for start, kind in _KINDS.items() if given.startswith(start)), "")
        if not kind:
            raise Config(
                "node_config.UserData is in no form that cloud-init reads (a script, #cloud-config, MIME), so the "
                "script that ends a machine that nobody ever enters cannot be added to it"
            )
        whole.attach(MIMEText(given, kind, "utf-8"))
    whole.attach(MIMEText(ours, "x-shellscript", "utf-8"))
    return whole.as_string()


def with_startup_script(given: str, ours: str) -> str:
    """A startup script that does what ours does, then runs the operator's own by its interpreter."""
    if not given or is_ours(given):
        return ours
    first, _, _ = given.partition("\n")
    interpreter = first.removeprefix("#!").strip() if first.startswith("#!") else "/bin/sh"
    return f'{ours}given=$(mktemp)\nprintf %s {shlex.quote(given)} > "$given"\nexec {interpreter} "$given"\n'
