"""Classes of learners of the examples."""
