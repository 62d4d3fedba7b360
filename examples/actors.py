"""Actors: objects that live in a process of their own, keep state, and are called from anywhere."""

import random

import runtime as ray

ray.init()


@ray.remote(num_cpus=0)
class Tally:
    """Collects what the samplers find."""

    def __init__(self) -> None:
        self.inside = 0
        self.total = 0

    def add(self, inside: int, total: int) -> None:
        self.inside += inside
        self.total += total

    def pi(self) -> float:
        return 4 * self.inside / self.total


@ray.remote
def sample(tally: "ray.actor.ActorHandle", seed: int, points: int) -> None:
    """Throws points at the unit square and tells the tally how many fell into the circle."""
    rng = random.Random(seed)
    inside = sum(rng.random() ** 2 + rng.random() ** 2 < 1 for _ in range(points))
    ray.get(tally.add.remote(inside, points))


tally = Tally.remote()
ray.get([sample.remote(tally, seed, 100_000) for seed in range(20)])
print(f"pi is about {ray.get(tally.pi.remote()):.3f}")
