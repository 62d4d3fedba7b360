"""ray.util.queue between producers and consumers, with its errors and batches."""

import ray
from ray.util.queue import Empty, Full, Queue


@ray.remote
def produce(queue, first, count):
    for i in range(first, first + count):
        queue.put(i)
    return count


@ray.remote
def consume(queue, count):
    return [queue.get(timeout=60) for _ in range(count)]


ray.init(num_cpus=4)
queue = Queue(maxsize=4)
producers = [produce.remote(queue, 100 * i, 6) for i in range(2)]
consumers = [consume.remote(queue, 4) for _ in range(3)]
print(sum(ray.get(producers)), sorted(sum(ray.get(consumers), [])))
print(queue.empty(), queue.size(), queue.full())
queue.put_nowait_batch([1, 2, 3])
try:
    queue.put_nowait_batch([4, 5])
except Full as error:
    print("full", isinstance(error, Exception))
print(queue.get_nowait_batch(2), len(queue))
queue.get()
for call in (queue.get_nowait, lambda: queue.get(timeout=0.1), lambda: queue.get_nowait_batch(1)):
    try:
        call()
    except Empty:
        print("empty")
for i in range(4):
    queue.put(i)
try:
    queue.put(9, timeout=0.1)
except Full:
    print("full")
try:
    queue.get(timeout=-1)
except ValueError as error:
    print(error)
queue.shutdown()
print(queue.actor)
