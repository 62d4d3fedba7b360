"""A script as one line of a shell's input. A shell's `read` takes a line and not a byte more, so that the rest of the
input is the script's own; and it is a part of the shell, which starts no program for it. Pure."""

RUN = """exec /bin/sh -c 'eval "$(LC_ALL=C; IFS= read -r line && printf %b "$line")"'"""
"""Command: runs the script in a POSIX shell. Log-in shells of all kinds read it alike. It does nothing where the line
did not come whole. Bytes are no characters to it: bash's `read` loses some that are none in the locale."""


def encode(script: bytes) -> bytes:
    """The line; `printf %b` makes the script of it."""
    return script.replace(b"\\", b"\\\\").replace(b"\n", b"\\n") + b"\n"
