"""What a new version changes: `user_config` and numbers of replicas in place, code and arguments by new replicas."""

import os
import socket
import time

import httpx
import ray
from ray import serve


@ray.remote
class Journal:
    def __init__(self):
        self.lines = []

    def write(self, line):
        self.lines.append(line)

    def read(self):
        lines, self.lines = self.lines, []
        return sorted(lines)


@serve.deployment(user_config={"greeting": "hello", "times": 1})
class Greeter:
    def __init__(self, journal, name="nobody"):
        self.journal = journal
        self.name = name
        self.greeting = self.times = None
        self.journal.write.remote(f"built for {name}")

    def reconfigure(self, config):
        if config["times"] < 0:
            raise ValueError("a greeting cannot come less than never")
        self.greeting, self.times = config["greeting"], config["times"]
        self.journal.write.remote(f"configured {config['greeting']}")

    async def __call__(self, request):
        return " ".join([f"{self.greeting} {self.name}"] * self.times)

    async def pid(self):
        return os.getpid()

    def __del__(self):
        self.journal.write.remote("gone")


@serve.deployment
class Fixed:
    """Its code never changes, so its replica stays when options do."""

    def __init__(self):
        self.config = "none"

    async def reconfigure(self, config):
        self.config = config

    async def __call__(self, request):
        return {"config": self.config, "pid": os.getpid()}


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=16, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
journal = Journal.remote()
client = httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=60)


def journal_of(expected):
    found, end = [], time.monotonic() + 30
    while len(found) < expected and time.monotonic() < end:
        found += ray.get(journal.read.remote())
        time.sleep(0.02)
    return sorted(found)


def pids_of(handle, count):
    found, end = set(), time.monotonic() + 30
    while len(found) < count and time.monotonic() < end:
        found |= {each.result() for each in [handle.pid.remote() for _ in range(10)]}
    return found


def running(app, deployment):
    states = serve.status().applications[app].deployments[deployment].replica_states
    return {state: count for state, count in states.items() if count}


handle = serve.run(Greeter.bind(journal, "Ann"))
first = pids_of(handle, 1)
print("first:", client.get("/").text, journal_of(2), len(first))

polite = Greeter.options(user_config={"greeting": "good day", "times": 2})
handle = serve.run(polite.bind(journal, "Ann"))
print("configured:", client.get("/").text, journal_of(1), pids_of(handle, 1) == first)

handle = serve.run(polite.options(num_replicas=3).bind(journal, "Ann"))
three = pids_of(handle, 3)
print("three:", running("default", "Greeter"), len(three), first < three, journal_of(4))
serve.run(polite.options(num_replicas=1).bind(journal, "Ann"))
print("one again:", running("default", "Greeter"), journal_of(2))

last = pids_of(handle, 1)
handle = serve.run(polite.bind(journal, "Bob"))
print("another argument:", client.get("/").text, journal_of(3), pids_of(handle, 1).isdisjoint(last))

try:
    serve.run(polite.options(user_config={"greeting": "hm", "times": -1}).bind(journal, "Bob"))
except Exception as error:
    print("bad configuration:", type(error).__name__)
status = serve.status().applications["default"]
print("status:", status.status.value)
print("message:", "less than never" in status.deployments["Greeter"].message)
serve.run(polite.bind(journal, "Cid"))
print("repaired:", client.get("/").text)
serve.delete("default")

serve.run(Fixed.options(user_config="a").bind(), name="fixed", route_prefix="/fixed")
before = client.get("/fixed").json()
serve.run(Fixed.options(user_config="b", max_ongoing_requests=7).bind(), name="fixed", route_prefix="/fixed")
after = client.get("/fixed").json()
print("fixed:", before["config"], after["config"], before["pid"] == after["pid"])
serve.run(Fixed.options(user_config="b").bind(), name="fixed", route_prefix="/moved")
print("moved:", client.get("/fixed").status_code, client.get("/moved").json()["pid"] == before["pid"])
print("options:", Greeter.num_replicas, polite.user_config, Greeter.user_config, Fixed.options(name="F").name)
serve.shutdown()
