"""Tasks and actors that choose nodes by labels."""

import ray

ray.init(num_cpus=4, labels={"zone": "east", "disk": "ssd"})


@ray.remote
def where():
    return ray.get_runtime_context().get_node_labels().get("zone")


@ray.remote
class Actor:
    def labels(self):
        labels = ray.get_runtime_context().get_node_labels()
        return {key: labels[key] for key in ("zone", "disk")}


for selector in (
    {"zone": "east"},
    {"zone": "!west"},
    {"zone": "in(east,north)", "disk": "ssd"},
    {"disk": "!in(hdd)"},
):
    print(selector, ray.get(where.options(label_selector=selector).remote()))
print(ray.get(Actor.options(label_selector={"disk": "ssd"}).remote().labels.remote()))

waiting = where.options(label_selector={"zone": "west"}).remote()
ready, rest = ray.wait([waiting], timeout=0.3)
print("no such node:", len(ready), len(rest))

fallback = where.options(
    label_selector={"zone": "west"}, fallback_strategy=[{"label_selector": {"zone": "east"}}]
)
print("fallback:", ray.get(fallback.remote(), timeout=30))

for bad in ("zone", {"zone": 1}, {"zone": "in(a"}, {"zone": "a b"}):
    try:
        where.options(label_selector=bad).remote()
        print(bad, "accepted")
    except (TypeError, ValueError) as error:
        print(bad, type(error).__name__)
