"""The executing side of a worker: takes pushed calls, runs user code and answers. Drivers do not need it."""
