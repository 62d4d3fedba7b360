"""Names that programs take from `ray.util`, from modules that are called otherwise here."""
