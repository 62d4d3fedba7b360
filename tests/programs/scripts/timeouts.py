"""Loops around ray.wait and ray.get with timeouts."""

import time

import ray

ray.init(num_cpus=4)


@ray.remote(num_cpus=0)
class Gate:
    """Tasks wait for it to open, so that nothing depends on how fast they are."""

    def __init__(self):
        self.open = set()

    def let(self, *names):
        self.open.update(names)

    def is_open(self, name):
        return name in self.open


@ray.remote
def work(gate, name):
    while not ray.get(gate.is_open.remote(name)):
        time.sleep(0.005)
    return name


gate = Gate.remote()
refs = {name: work.remote(gate, name) for name in "abcd"}
order = list(refs.values())
names = {ref: name for name, ref in refs.items()}


def show(label, result):
    ready, rest = result
    print(f"{label}: ready {[names[r] for r in ready]} waiting {[names[r] for r in rest]}")


show("nothing yet", ray.wait(order, timeout=0.05))
show("zero", ray.wait(order, num_returns=4, timeout=0))
ray.get(gate.let.remote("c"))
show("one", ray.wait(order))
ray.get(gate.let.remote("a"))
show("two, in order", ray.wait(order, num_returns=2))
show("no more", ray.wait(order, num_returns=3, timeout=0.05))

try:
    ray.get(order, timeout=0.05)
except ray.exceptions.GetTimeoutError:
    print("get of all timed out")
try:
    ray.get(refs["b"], timeout=0)
except TimeoutError:
    print("get of one timed out")
print("there already:", ray.get(refs["a"], timeout=0), ray.get([refs["c"], refs["a"]], timeout=0))

ray.get(gate.let.remote("b", "d"))
unfinished = order
collected = []
while unfinished:
    done, unfinished = ray.wait(unfinished, num_returns=1)
    collected += ray.get(done)
print("all:", sorted(collected))

for bad in (
    lambda: ray.wait(refs["a"]),
    lambda: ray.wait([refs["a"], refs["a"]]),
    lambda: ray.wait([refs["a"]], num_returns=2),
    lambda: ray.wait([refs["a"]], num_returns=0),
    lambda: ray.wait([1]),
    lambda: ray.get(1),
    lambda: ray.get([refs["a"], 1]),
    lambda: ray.put(refs["a"]),
):
    try:
        bad()
        print("no error")
    except Exception as error:
        print(type(error).__name__)
print("an empty list:", ray.wait([]) if False else ray.get([]))
