"""What the public modules of `runtime` share: arguments of `init`, options of tasks and actors, cluster views."""
