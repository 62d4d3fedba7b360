"""Producers and consumers around a distributed queue."""

import ray
from ray.util.queue import Empty, Full, Queue

ray.init(num_cpus=4)

DONE = None


@ray.remote
def produce(queue, name, count):
    for i in range(count):
        queue.put((name, i))
    return count


@ray.remote
def consume(queue):
    taken = []
    while True:
        item = queue.get(timeout=30)
        if item is DONE:
            return taken
        taken.append(item)


queue = Queue(maxsize=5)
consumers = [consume.remote(queue) for _ in range(2)]
producers = [produce.remote(queue, name, 10) for name in "ab"]
print("produced:", ray.get(producers))
for _ in consumers:
    queue.put(DONE)
taken = ray.get(consumers)
everything = sorted(item for items in taken for item in items)
print("consumed:", len(everything), everything[:3], everything[-3:])
for items in taken:
    for name in "ab":
        order = [i for n, i in items if n == name]
        assert order == sorted(order)

print("empty:", queue.empty(), "size:", queue.qsize(), len(queue))
for i in range(5):
    queue.put_nowait(i)
print("full:", queue.full())
try:
    queue.put_nowait(9)
except Full as error:
    print("Full", isinstance(error, Exception))
try:
    queue.put(9, timeout=0.1)
except Full:
    print("still Full")
print(queue.get_nowait_batch(3))
try:
    queue.get_nowait_batch(3)
except Empty:
    print("Empty: only two are left")
print([queue.get(), queue.get(block=False)])
try:
    queue.get_nowait()
except Empty:
    print("Empty")
try:
    queue.get(timeout=0.1)
except Empty:
    print("still Empty")
queue.shutdown()
