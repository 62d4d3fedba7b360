"""Helpers at the paths of the former API stack. The models of that stack are not here."""
