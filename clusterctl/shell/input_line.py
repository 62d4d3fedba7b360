"""Scripts as lines of a shell's input. A shell's `read` takes a line and not a byte more, so that the rest of the
input is the script's own; and it is a part of the shell, which starts no program for it. Pure."""

_LINE = 'LC_ALL=C; IFS= read -r line || line=false; printf %b "$line"'
RUN = f"""exec /bin/sh -c 'while eval "$({_LINE})"; do :; done; false'"""
"""Command: runs one script after another in a POSIX shell, while they end well. Log-in shells of all kinds read it
alike. It ends where a line did not come whole. Bytes are no characters to it: bash's `read` loses some that are none in
the locale."""


def encode(script: bytes) -> bytes:
    """The line; `printf %b` makes the script of it."""
    return script.replace(b"\\", b"\\\\").replace(b"\n", b"\\n") + b"\n"
