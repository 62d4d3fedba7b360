"""joblib over a cluster: `register_ray`, the backend as a context, errors and nested calls."""

import joblib
import ray
from ray.util.joblib import register_ray


def square(x):
    return x * x


def half(x):
    if x % 2:
        raise ValueError(f"{x} is odd")
    return x // 2


ray.init(num_cpus=3)
register_ray()
with joblib.parallel_backend("ray"):
    print(joblib.Parallel()(joblib.delayed(square)(i) for i in range(12)))
    print(joblib.Parallel(n_jobs=2)(joblib.delayed(pow)(2, i) for i in range(8)))
    try:
        joblib.Parallel(n_jobs=2)(joblib.delayed(half)(i) for i in (2, 4, 5, 6))
    except ValueError as error:
        print("error:", str(error).splitlines()[-1])
with joblib.parallel_backend("ray", n_jobs=2):
    chunks = joblib.Parallel(batch_size=3)(joblib.delayed(sorted)([3, i, 1]) for i in range(6))
    print(chunks)
