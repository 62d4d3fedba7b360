"""Back-pressure by hand: a bounded number of tasks in flight, with ray.wait and with resources."""

import ray

ray.init(num_cpus=4)

MAX_IN_FLIGHT = 5


@ray.remote
class Tracker:
    def __init__(self):
        self.now = self.most = self.total = 0

    def change(self, by):
        self.now += by
        self.most = max(self.most, self.now)
        self.total += by > 0

    def report(self):
        return self.most, self.total


@ray.remote
def process(item, tracker):
    ray.get(tracker.change.remote(+1))
    result = item**2
    ray.get(tracker.change.remote(-1))
    return result


tracker = Tracker.remote()
in_flight, results = [], []
for item in range(40):
    if len(in_flight) >= MAX_IN_FLIGHT:
        done, in_flight = ray.wait(in_flight, num_returns=1)
        results += ray.get(done)
    in_flight.append(process.remote(item, tracker))
    assert len(in_flight) <= MAX_IN_FLIGHT
results += ray.get(in_flight)
most, total = ray.get(tracker.report.remote())
print(
    "all:",
    sorted(results) == [i**2 for i in range(40)],
    total,
    "never more than allowed:",
    most <= MAX_IN_FLIGHT,
)


@ray.remote(max_pending_calls=3, num_cpus=0)
class Slow:
    def __init__(self):
        import threading

        self.event = threading.Event()

    def work(self, path):
        import os
        import time

        while not os.path.exists(path):
            time.sleep(0.01)
        return "done"


import os
import tempfile

path = os.path.join(tempfile.mkdtemp(), "go")
slow = Slow.remote()
calls = []
refused = 0
for _ in range(6):
    try:
        calls.append(slow.work.remote(path))
    except ray.exceptions.PendingCallsLimitExceeded:
        refused += 1
print("accepted:", len(calls), "refused:", refused)
open(path, "w").close()
print(ray.get(calls))
print("room again:", ray.get(slow.work.remote(path)))
