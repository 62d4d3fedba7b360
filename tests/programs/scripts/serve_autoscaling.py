"""Replicas follow the requests that are under way: up while they are held, down when they are let go, also to none."""

import os
import socket
import time

import ray
from ray import serve
from ray.serve.config import AutoscalingConfig


@ray.remote(num_cpus=0)
class Gate:
    def __init__(self):
        self.open = False
        self.began = 0

    def begin(self):
        self.began += 1

    def count(self):
        return self.began

    def let_go(self):
        self.open = True

    def shut(self):
        self.open, self.began = False, 0

    def is_open(self):
        return self.open


SCALING = {
    "min_replicas": 1,
    "max_replicas": 3,
    "target_ongoing_requests": 2,
    "upscale_delay_s": 0.2,
    "downscale_delay_s": 0.5,
    "look_back_period_s": 0.5,
    "metrics_interval_s": 0.1,
}


@serve.deployment(
    autoscaling_config=SCALING,
    max_ongoing_requests=4,
    graceful_shutdown_wait_loop_s=0.1,
    ray_actor_options={"num_cpus": 0.5},
)
class Worker:
    def __init__(self, gate):
        self.gate = gate

    async def hold(self):
        await self.gate.begin.remote()
        while not await self.gate.is_open.remote():
            await __import__("asyncio").sleep(0.02)
        return os.getpid()

    async def __call__(self, request):
        return str(os.getpid())


def running(app, deployment="Worker"):
    states = serve.status().applications[app].deployments[deployment].replica_states
    return states.get("RUNNING", 0), sum(states.values())


def until(condition, timeout_s=90):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=4, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
gate = Gate.remote()

handle = serve.run(Worker.bind(gate), name="steps")
print("at first:", running("steps"))
held = [handle.hold.remote() for _ in range(12)]
print("with 12 held, 3:", until(lambda: running("steps")[0] == 3))
print("no more than 3:", running("steps")[1] == 3)
print("all have begun:", until(lambda: ray.get(gate.count.remote()) == 12))
ray.get(gate.let_go.remote())
pids = {each.result(timeout_s=60) for each in held}
print("by several:", len(pids) > 1)
print("and down to 1:", until(lambda: running("steps") == (1, 1)))
print("it still answers:", handle.remote(None).result(timeout_s=60).isdigit())

ray.get(gate.shut.remote())
idle = Worker.options(autoscaling_config={**SCALING, "min_replicas": 0, "initial_replicas": 0})
handle = serve.run(idle.bind(gate), name="steps")
print("none when idle:", until(lambda: running("steps") == (0, 0)))
response = handle.hold.remote()
print(
    "the first one waits for a replica:",
    until(lambda: ray.get(gate.count.remote()) == 1),
    running("steps")[0],
)
ray.get(gate.let_go.remote())
print("its answer:", response.result(timeout_s=60) > 0)
print("none again:", until(lambda: running("steps") == (0, 0)))

config = AutoscalingConfig(min_replicas=2, max_replicas=5, initial_replicas=3)
print(config.min_replicas, config.initial_replicas, config.max_replicas, config.target_ongoing_requests)
print(config.upscale_delay_s, config.downscale_delay_s, config.look_back_period_s)
for wrong in (
    {"min_replicas": 3, "max_replicas": 2},
    {"min_replicas": -1},
    {"target_ongoing_requests": 0},
    {"initial_replicas": 9, "max_replicas": 4},
    {"upscale_delay_s": -1},
):
    try:
        AutoscalingConfig(**wrong)
        print("accepted:", wrong)
    except ValueError:
        print("refused:", sorted(wrong))
try:
    serve.deployment(num_replicas=2, autoscaling_config=SCALING)(Worker.func_or_class)
except ValueError:
    print("refused: a number and a configuration")
auto = Worker.options(num_replicas="auto", autoscaling_config=None)
print("auto:", auto.num_replicas)
serve.shutdown()
