"""Parts of `Algorithm`: evaluation, what results are filled with, changes of modules."""
