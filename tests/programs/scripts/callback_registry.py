"""Actor handles passed around: a registry of callbacks, handles in containers and closures."""

import ray

ray.init(num_cpus=4)


@ray.remote(num_cpus=0)
class Listener:
    def __init__(self, name):
        self.name = name
        self.events = []

    def notify(self, topic, payload):
        self.events.append((topic, payload))
        return self.name

    def get_events(self):
        return self.events

    def me(self):
        return ray.get_runtime_context().current_actor


@ray.remote(num_cpus=0)
class Registry:
    def __init__(self):
        self.callbacks = {}

    def register(self, topic, handle, method="notify"):
        self.callbacks.setdefault(topic, []).append((handle, method))

    def fire(self, topic, payload):
        calls = [getattr(h, m).remote(topic, payload) for h, m in self.callbacks.get(topic, [])]
        return sorted(ray.get(calls))

    def everyone(self):
        return [handle for pairs in self.callbacks.values() for handle, _ in pairs]


@ray.remote
def fire_from_task(registry, topic, payload):
    return ray.get(registry.fire.remote(topic, payload))


@ray.remote
def register_all(registry, handles):
    for topic, listeners in handles.items():
        for listener in listeners:
            ray.get(registry.register.remote(topic, listener))
    return len(handles)


registry = Registry.remote()
ann, ben = Listener.remote("ann"), Listener.remote("ben")
print(ray.get(register_all.remote(registry, {"x": [ann, ben], "y": [ben]})))
print(ray.get(registry.fire.remote("x", 1)), ray.get(fire_from_task.remote(registry, "y", 2)))
print(ray.get(registry.fire.remote("z", 3)))

captured = ann


@ray.remote
def by_closure():
    return ray.get(captured.notify.remote("closure", None))


print(ray.get(by_closure.remote()))
print(ray.get(ann.get_events.remote()))
print(ray.get(ben.get_events.remote()))

copies = ray.get(registry.everyone.remote())
print(len(copies), copies[0] == ann, copies[1] == copies[2] == ben, len(set(copies)))
myself = ray.get(ann.me.remote())
print(
    myself == ann,
    myself._actor_id == ann._actor_id,
    repr(ann) == repr(myself),
    repr(ann).startswith("Actor(Listener"),
)

stored = ray.put({"handle": ben})
del ben, copies
print(ray.get(ray.get(stored)["handle"].notify.remote("stored", 4)))

method = ann.notify
print(ray.get([method.remote("bound", i) for i in range(2)]))
try:
    ann.no_such_method
except AttributeError as error:
    print("AttributeError", "no_such_method" in str(error))
