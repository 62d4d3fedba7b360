"""Ray's private import paths that programs use. Nothing is defined here."""
