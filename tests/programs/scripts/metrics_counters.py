"""Application metrics: counters, gauges and histograms in tasks and actors."""

import ray
from ray.util.metrics import Counter, Gauge, Histogram

ray.init(num_cpus=4)


@ray.remote
class Server:
    def __init__(self, name):
        self.requests = Counter(
            "num_requests", description="Requests processed.", tag_keys=("actor_name", "path")
        )
        self.requests.set_default_tags({"actor_name": name})
        self.in_flight = Gauge("in_flight", description="Requests now.", tag_keys=("actor_name",))
        self.in_flight.set_default_tags({"actor_name": name})
        self.latency = Histogram("latency_ms", boundaries=[1, 10, 100], tag_keys=())
        self.served = 0

    def handle(self, path, ms):
        self.in_flight.set(1)
        self.requests.inc(tags={"path": path})
        self.latency.observe(ms)
        self.served += 1
        self.in_flight.set(0)
        return self.served

    def info(self):
        return self.requests.info


server = Server.remote("s1")
print([ray.get(server.handle.remote(path, ms)) for path, ms in (("/a", 5), ("/b", 50), ("/a", 500))])
info = ray.get(server.info.remote())
print(info["name"], "|", info["description"], "|", info["tag_keys"], "|", info["default_tags"])

counter = Counter("events", tag_keys=("kind",))
counter.inc(2.5, tags={"kind": "x"})


def refused(label, function):
    try:
        function()
        print(label, "accepted")
    except Exception as error:
        print(label, type(error).__name__)


refused("no tag", lambda: counter.inc(1))
refused("unknown tag", lambda: counter.inc(1, tags={"kind": "x", "colour": "red"}))
refused("negative", lambda: counter.inc(-1, tags={"kind": "x"}))
refused("zero", lambda: counter.inc(0, tags={"kind": "x"}))
refused("tag keys", lambda: Counter("bad", tag_keys="text"))
refused("empty name", lambda: Gauge(""))
refused("boundaries", lambda: Histogram("h", boundaries=[]))
refused("negative boundary", lambda: Histogram("h", boundaries=[-1, 1]))
refused("default tags", lambda: counter.set_default_tags({"colour": "red"}))
refused("gauge of text", lambda: Gauge("g").set("text"))
gauge = Gauge("temperature", description="now", tag_keys=("room",)).set_default_tags({"room": "attic"})
gauge.set(-3.5)
print(type(gauge).__name__, gauge.info)
