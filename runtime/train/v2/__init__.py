"""Where Ray has its trainer for JAX, `ray.train.v2.jax`. All other names are in `runtime.train`."""
