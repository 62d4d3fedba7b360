"""Takes the first answers and cancels the rest."""

import time

import ray
from ray.exceptions import GetTimeoutError, TaskCancelledError, WorkerCrashedError

ray.init(num_cpus=4)


@ray.remote
def search(shard, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.01)
    return shard


@ray.remote
def polite(signal):
    try:
        ray.get(signal.start.remote())
        while True:
            time.sleep(0.01)
    except KeyboardInterrupt:
        ray.get(signal.cleaned.remote())
        raise


@ray.remote(num_cpus=0)
class Signal:
    def __init__(self):
        self.started = self.cleaned_up = False

    def start(self):
        self.started = True

    def cleaned(self):
        self.cleaned_up = True

    def state(self):
        return self.started, self.cleaned_up


def cancel(ref, **options):
    """Asks until it has ended: a request may come while the task is on its way to a worker."""
    while not ray.wait([ref], timeout=0)[0]:
        ray.cancel(ref, **options)
        ray.wait([ref], timeout=1)


def outcome(ref):
    try:
        return ray.get(ref, timeout=30)
    except TaskCancelledError:
        return "cancelled"
    except WorkerCrashedError:
        return "killed"


tasks = [search.remote(i, 0.01 if i % 3 == 0 else 60) for i in range(4)]
fast, slow = ray.wait(tasks, num_returns=2, timeout=30)
print("fast:", sorted(ray.get(fast)))
for ref in slow:
    cancel(ref)
print("slow:", [outcome(ref) for ref in slow])

blocker = [search.remote(i, 60) for i in range(4)]
queued = search.remote("queued", 0)
ray.cancel(queued)
print("queued:", outcome(queued))
for ref in blocker:
    cancel(ref, force=True)
print("forced:", {outcome(ref) in ("cancelled", "killed") for ref in blocker})

signal = Signal.remote()
ref = polite.remote(signal)
while not ray.get(signal.state.remote())[0]:
    time.sleep(0.01)
cancel(ref)
print("polite:", outcome(ref), ray.get(signal.state.remote()))

finished = search.remote("finished", 0)
print(ray.get(finished))
ray.cancel(finished)
print("still", ray.get(finished))

late = search.remote("late", 60)
try:
    ray.get(late, timeout=0.05)
except GetTimeoutError as error:
    print("timeout:", isinstance(error, TimeoutError))
cancel(late)
print("late:", outcome(late))
