"""Classes of modules of the examples."""
