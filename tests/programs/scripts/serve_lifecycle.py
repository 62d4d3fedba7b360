"""Applications come and go: start, status, several, delete, again under the same name, shutdown, start anew."""

import socket
import time

import httpx
import ray
from ray import serve
from ray.serve.config import HTTPOptions


@ray.remote(num_cpus=0)
class Journal:
    def __init__(self):
        self.lines = []

    def write(self, line):
        self.lines.append(line)

    def read(self):
        return sorted(self.lines)


@serve.deployment(graceful_shutdown_timeout_s=10, graceful_shutdown_wait_loop_s=0.1)
class Counter:
    def __init__(self, name, journal):
        self.name = name
        self.journal = journal
        self.count = 0

    async def __call__(self, request):
        self.count += 1
        return {"name": self.name, "count": self.count}

    def __del__(self):
        self.journal.write.remote(f"{self.name} ends after {self.count}")


@serve.deployment
class Helper:
    async def help(self):
        return "help"


def value(state):
    return state.value


def status():
    return {
        name: (
            value(app.status),
            {d: value(details.status) for d, details in sorted(app.deployments.items())},
        )
        for name, app in sorted(serve.status().applications.items())
    }


def eventually(condition):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


ray.init(num_cpus=16, log_to_driver=False)
PORT = free_port()
serve.start(http_options=HTTPOptions(host="127.0.0.1", port=PORT))
journal = Journal.remote()
client = httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=60)
print("nothing yet:", status(), client.get("/").status_code)

serve.run(Counter.bind("one", journal), name="one", route_prefix="/one")
serve.run(Counter.bind("two", journal), name="two", route_prefix="/two")
serve.start(http_options=HTTPOptions(host="127.0.0.1", port=PORT))
print(client.get("/one").json(), client.get("/one").json(), client.get("/two").json())
print(status())

serve.delete("one")
print("deleted:", status(), client.get("/one").status_code, client.get("/two").json())
print("its end:", eventually(lambda: ray.get(journal.read.remote()) == ["one ends after 2"]))
try:
    serve.get_app_handle("one")
except Exception as error:
    print("no handle:", type(error).__name__)
serve.delete("never")

handle = serve.run(Counter.bind("another", journal), name="one", route_prefix="/one")
print("again:", client.get("/one").json())
serve.run(Counter.bind("another", journal), name="one", route_prefix="/1")
print("another route:", client.get("/one").status_code, client.get("/1").json()["name"])
serve.run(Helper.bind(), name="two", route_prefix="/two")
print("another deployment:", status()["two"], serve.get_app_handle("two").help.remote().result())
print("the old one ends:", eventually(lambda: "two ends after 2" in ray.get(journal.read.remote())))
names = [f"many-{number}" for number in range(4)]
for name in names:
    serve.run(Helper.options(ray_actor_options={"num_cpus": 0.1}).bind(), name=name, route_prefix=None)
print("many:", sorted(serve.status().applications))
for name in names:
    serve.delete(name)
print("left:", sorted(serve.status().applications))
controller = ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")
print("controller:", type(controller).__name__)

serve.shutdown()
try:
    client.get("/two")
    print("still there")
except httpx.TransportError:
    print("shut down")
print(
    "the last ends:",
    eventually(lambda: any(line.startswith("another") for line in ray.get(journal.read.remote()))),
)
print("left:", status())
serve.shutdown()

PORT = free_port()
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
serve.run(Counter.bind("new", journal))
print("anew:", httpx.get(f"http://127.0.0.1:{PORT}/", timeout=60).json(), status())
serve.shutdown()
