"""The class that backends of a program's own derive from, at the place where Ray has it."""
