"""Workers with queues of their own that steal from each other when theirs is empty."""

import collections

import ray

ray.init(num_cpus=4)


@ray.remote(num_cpus=0)
class Deque:
    """The work of one worker; it takes from one end, thieves take from the other."""

    def __init__(self, items):
        self.items = collections.deque(items)

    def take(self):
        return self.items.popleft() if self.items else None

    def steal(self):
        half = len(self.items) // 2
        return [self.items.pop() for _ in range(half)]

    def give(self, items):
        self.items.extend(items)

    def __len__(self):
        return len(self.items)

    def size(self):
        return len(self)


@ray.remote
def worker(me, deques):
    done, stolen = [], 0
    while True:
        item = ray.get(deques[me].take.remote())
        if item is not None:
            done.append((item, sum(range(item))))
            continue
        sizes = ray.get([d.size.remote() for d in deques])
        victim = max(range(len(deques)), key=lambda i: sizes[i])
        loot = ray.get(deques[victim].steal.remote()) if sizes[victim] > 1 else []
        if not loot:
            return done, stolen
        stolen += len(loot)
        ray.get(deques[me].give.remote(loot))


deques = [Deque.remote(range(60)), Deque.remote([]), Deque.remote(range(60, 63))]
results = ray.get([worker.remote(i, deques) for i in range(3)])
everything = sorted(pair for done, _ in results for pair in done)
print("done once each:", [item for item, _ in everything] == list(range(63)))
print("right:", all(value == item * (item - 1) // 2 for item, value in everything))
print("left:", ray.get([d.size.remote() for d in deques]))
