"""Names that programs take from `ray._private`."""
