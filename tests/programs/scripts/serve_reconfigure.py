"""New versions: another `user_config`, more and fewer replicas, other arguments and code, a configuration that fails."""

import os
import socket
import time

import httpx
import ray
from ray import serve


@serve.deployment(user_config={"greeting": "hello", "times": 1})
class Greeter:
    def __init__(self, name="nobody"):
        self.name = name
        self.greeting = self.times = None
        self.configured = 0

    def reconfigure(self, config):
        if config["times"] < 0:
            raise ValueError("a greeting cannot come less than never")
        self.greeting, self.times = config["greeting"], config["times"]
        self.configured += 1

    async def __call__(self, request):
        return " ".join([f"{self.greeting} {self.name}"] * self.times)

    async def before_the_first_request(self):
        return self.configured >= 1

    async def pid(self):
        return os.getpid()


@serve.deployment
class Waiting:
    """Configured by a coroutine; without a configuration none is called."""

    def __init__(self):
        self.config = "none"

    async def reconfigure(self, config):
        self.config = config

    async def __call__(self, request):
        return {"config": self.config}


@serve.deployment(name="Greeter")
class Other:
    """Takes the place of a deployment."""

    async def __call__(self, request):
        return "other code"


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=16, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
client = httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=60)


def pids_of(handle, count):
    """Of the replicas that answer, once so many do."""
    found, end = set(), time.monotonic() + 30
    while len(found) < count and time.monotonic() < end:
        found |= {each.result() for each in [handle.pid.remote() for _ in range(10)]}
    return found


def running(deployment="Greeter", app="default"):
    states = serve.status().applications[app].deployments[deployment].replica_states
    return {state: count for state, count in states.items() if count}


handle = serve.run(Greeter.bind("Ann"))
print("first:", client.get("/").text, running(), handle.before_the_first_request.remote().result())

polite = Greeter.options(user_config={"greeting": "good day", "times": 2})
handle = serve.run(polite.bind("Ann"))
print("configured:", client.get("/").text, running())

handle = serve.run(polite.options(num_replicas=3).bind("Ann"))
print("three:", running(), len(pids_of(handle, 3)))
handle = serve.run(polite.options(num_replicas=1).bind("Ann"))
print("one again:", running(), len(pids_of(handle, 1)), client.get("/").text)

last = pids_of(handle, 1)
handle = serve.run(polite.bind("Bob"))
print("another argument:", client.get("/").text, pids_of(handle, 1).isdisjoint(last))

try:
    serve.run(polite.options(user_config={"greeting": "hm", "times": -1}).bind("Bob"))
except RuntimeError:
    print("a bad configuration")
status = serve.status().applications["default"]
print("status:", status.status.value)
print("message:", "less than never" in status.deployments["Greeter"].message)
serve.run(polite.bind("Cid"))
print("repaired:", client.get("/").text, serve.status().applications["default"].status.value)
serve.run(Other.bind())
print("other code:", client.get("/").text, running())

serve.run(Waiting.bind(), name="waiting", route_prefix="/waiting")
print("waiting:", client.get("/waiting").json())
serve.run(Waiting.options(user_config=["a", 1]).bind(), name="waiting", route_prefix="/waiting")
print("waiting:", client.get("/waiting").json())
serve.run(
    Waiting.options(user_config="b", max_ongoing_requests=7).bind(), name="waiting", route_prefix="/moved"
)
print("moved:", client.get("/waiting").status_code, client.get("/moved").json())
print(
    "options:", Greeter.num_replicas, polite.user_config, Greeter.user_config, Waiting.options(name="W").name
)
serve.shutdown()
