"""Pi by throwing darts: tasks report their progress to an actor."""

import math
import random
import time

import ray

ray.init(num_cpus=4)

NUM_TASKS = 6
SAMPLES = 20_000


@ray.remote
class ProgressActor:
    def __init__(self, total):
        self.total = total
        self.done = {}

    def report_progress(self, task_id, samples):
        self.done[task_id] = samples

    def get_progress(self):
        return sum(self.done.values()) / self.total


@ray.remote
def sampling_task(num_samples, task_id, progress_actor):
    rng = random.Random(task_id)
    inside = 0
    for i in range(num_samples):
        x, y = rng.uniform(-1, 1), rng.uniform(-1, 1)
        if math.hypot(x, y) <= 1:
            inside += 1
        if (i + 1) % 5_000 == 0:
            progress_actor.report_progress.remote(task_id, i + 1)
    return inside


progress_actor = ProgressActor.remote(NUM_TASKS * SAMPLES)
results = [sampling_task.remote(SAMPLES, i, progress_actor) for i in range(NUM_TASKS)]

last = 0.0
while True:
    progress = ray.get(progress_actor.get_progress.remote())
    assert progress >= last
    last = progress
    if progress == 1:
        break
    time.sleep(0.02)

total = sum(ray.get(results))
print("inside:", total)
print("pi:", total * 4 / (NUM_TASKS * SAMPLES))
