"""Options of every kind at calls: names, retries, several returns, defaults of classes and of single calls."""

import ray


@ray.remote(num_cpus=0.5, max_retries=1)
def describe(*values, sep="-"):
    """Joins what it gets."""
    return sep.join(map(str, values))


@ray.remote(num_cpus=0.5)
class Box:
    """A box."""

    def __init__(self, size, *, color="red"):
        self.size, self.color = size, color

    def describe(self, *more):
        """Says what it is."""
        return (self.size, self.color, *more)

    @ray.method(num_returns=2)
    def both(self):
        return self.size, self.color

    @staticmethod
    def static(x):
        return x * 2

    @classmethod
    def named(cls):
        return cls.__name__

    @property
    def volume(self):
        return self.size**3

    def __len__(self):
        return self.size


ray.init(num_cpus=2)
print(ray.get(describe.remote(1, 2, sep="/")), ray.get(describe.options(name="other").remote()))
box = Box.options(name="box").remote(3, color="blue")
print(ray.get(box.describe.remote(1)), ray.get(box.both.remote()), ray.get(box.static.remote(4)))
print(ray.get(box.named.remote()), ray.get(box.__len__.remote()))
print(ray.get(box.both.options(num_returns=1).remote()))
for wrong in (
    lambda: describe(1),
    lambda: Box(1),
    lambda: box.describe(),
    lambda: Box.remote(),
    lambda: box.describe.remote(no=1),
    lambda: box.nothing,
    lambda: describe.options(num_cpus=-1),
    lambda: describe.options(lifetime="detached"),
    lambda: ray.remote(num_cpu=1)(lambda: 1),
    lambda: ray.remote(3),
):
    try:
        wrong()
        print("no error")
    except Exception as error:
        print(type(error).__name__)
