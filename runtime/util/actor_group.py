"""Ray deprecated groups of equal actors: use a list of handles."""

raise ImportError(
    "runtime.util.actor_group (ActorGroup) is deprecated and does not exist here: make the actors in a list, "
    "`[Worker.remote() for _ in range(n)]`, and call them in a loop, or use runtime.util.ActorPool."
)
