"""joblib over the cluster: `register_ray()`, then `joblib.parallel_backend("ray")`."""

__all__ = ["register_ray"]


def register_ray() -> None:
    """Makes the backend "ray" known to joblib.

    Raises:
        ImportError: joblib is not installed.
    """
    try:
        from joblib.parallel import register_parallel_backend
    except ImportError as error:
        raise ImportError("register_ray() needs joblib: install it with `pip install joblib`.") from error

    from .ray_backend import RayBackend

    register_parallel_backend("ray", RayBackend)
