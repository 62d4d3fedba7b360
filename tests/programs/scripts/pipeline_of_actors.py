"""Stages of a pipeline as actors that hand references to each other; the driver only holds the ends."""

import ray


@ray.remote
class Stage:
    def __init__(self, name, function, following=None):
        self.name, self.function, self.following, self.seen = name, function, following, 0

    def push(self, item):
        self.seen += 1
        out = self.function(item)
        if self.following is None:
            return out
        return self.following.push.remote(out)

    def stats(self):
        mine = [(self.name, self.seen)]
        return mine + (ray.get(self.following.stats.remote()) if self.following else [])


def resolve(ref):
    value = ray.get(ref)
    while isinstance(value, ray.ObjectRef):
        value = ray.get(value)
    return value


ray.init(num_cpus=3)
last = Stage.remote("format", lambda x: f"<{x}>")
middle = Stage.remote("square", lambda x: x * x, last)
first = Stage.remote("parse", int, middle)
refs = [first.push.remote(text) for text in ("1", "2", "x", "4")]
for ref in refs:
    try:
        print(resolve(ref))
    except ValueError as error:
        print("bad:", str(error).splitlines()[-1])
print(ray.get(first.stats.remote()))
