"""A folder for PYTHONPATH: `import ray` in a child process finds `ray.py` here. Not a package to import."""
