"""A folder for PYTHONPATH: `import ray` in a child process finds `ray.py` here. No package to import."""
