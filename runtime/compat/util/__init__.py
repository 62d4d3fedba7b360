"""Names that programs take from modules of `ray.util` that have other names here."""
