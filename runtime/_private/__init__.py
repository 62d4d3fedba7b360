"""Names that Ray's programs import from `ray._private` although they should not. Nothing of the engine lives here."""
