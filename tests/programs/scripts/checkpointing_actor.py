"""An actor that checkpoints its state and recovers it after a crash; an iterator that resumes."""

import json
import os
import tempfile

import ray

ray.init(num_cpus=4)


@ray.remote(max_restarts=-1, max_task_retries=3)
class Trainer:
    def __init__(self, path, every):
        self.path, self.every = path, every
        self.state = {"step": 0, "total": 0}
        self.restored = os.path.exists(path)
        if self.restored:
            with open(path) as file:
                self.state = json.load(file)

    def step(self, value, crash_at=None):
        if crash_at is not None and self.state["step"] == crash_at and not self.restored:
            os._exit(1)
        self.state["step"] += 1
        self.state["total"] += value
        if self.state["step"] % self.every == 0:
            draft = self.path + ".draft"
            with open(draft, "w") as file:
                json.dump(self.state, file)
            os.replace(draft, self.path)
        return dict(self.state)

    def info(self):
        return self.state["step"], self.restored


path = os.path.join(tempfile.mkdtemp(), "checkpoint.json")
trainer = Trainer.remote(path, every=2)
print([ray.get(trainer.step.remote(n))["total"] for n in range(5)])
# The fifth step was not saved; the crash makes the actor start over from the fourth.
print(ray.get(trainer.step.remote(100, crash_at=5)))
print(ray.get(trainer.info.remote()))
ray.kill(trainer, no_restart=False)
print(ray.get(trainer.info.remote()))
ray.kill(trainer)
try:
    ray.get(trainer.info.remote())
except ray.exceptions.RayActorError as error:
    print(type(error).__name__)
print(json.load(open(path)))
