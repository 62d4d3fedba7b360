"""A ring of actors that pass a token on; each knows the next one only."""

import ray

ray.init(num_cpus=4)


@ray.remote(num_cpus=0)
class Member:
    def __init__(self, index):
        self.index = index
        self.next = None
        self.passed = 0

    def link(self, following):
        self.next = following

    def pass_on(self, token, hops):
        """Adds its index and hands over; returns a reference, not the result."""
        self.passed += 1
        token = [*token, self.index]
        if hops == 0:
            return token
        return self.next.pass_on.remote(token, hops - 1)

    def passes(self):
        return self.passed


def follow(ref):
    hops = 0
    value = ray.get(ref)
    while isinstance(value, ray.ObjectRef):
        value = ray.get(value)
        hops += 1
    return value, hops


ring = [Member.remote(i) for i in range(5)]
ray.get([member.link.remote(ring[(i + 1) % 5]) for i, member in enumerate(ring)])

token, hops = follow(ring[0].pass_on.remote([], 12))
print(token, hops)
print(ray.get([member.passes.remote() for member in ring]))

several = [follow(ring[i].pass_on.remote([f"t{i}"], 3))[0] for i in range(5)]
for token in several:
    print(token)
