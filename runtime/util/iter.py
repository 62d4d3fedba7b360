"""Ray deprecated parallel iterators: use `map_unordered`, `ActorPool` or streaming generators."""

raise ImportError(
    "runtime.util.iter (ParallelIterator) is deprecated and does not exist here: use runtime.util.map_unordered, "
    "runtime.util.ActorPool, or remote generators."
)
