"""A detached service that outlives the drivers which use it; another namespace does not see it."""

import ray


@ray.remote
class Registry:
    def __init__(self):
        self.users = []

    def enter(self, name):
        self.users.append(name)
        return list(self.users)


context = ray.init(num_cpus=2, namespace="service")
registry = Registry.options(name="registry", lifetime="detached", get_if_exists=True).remote()
print(ray.get(registry.enter.remote("first")))


@ray.remote
def use(name):
    return ray.get(ray.get_actor("registry", namespace="service").enter.remote(name))


print(ray.get(use.remote("task")))
print(ray.util.list_named_actors(), ray.util.list_named_actors(all_namespaces=True))
try:
    ray.get_actor("registry", namespace="elsewhere")
except ValueError as error:
    print(type(error).__name__)
try:
    Registry.options(name="registry").remote()
except ValueError:
    print("taken")
same = Registry.options(name="registry", namespace="elsewhere").remote()
print(ray.get(same.enter.remote("other")))
for bad in ({"name": ""}, {"lifetime": "forever"}, {"get_if_exists": True}):
    try:
        Registry.options(**bad).remote()
        print("accepted", bad)
    except (ValueError, TypeError) as error:
        print(type(error).__name__, bad)
ray.kill(ray.get_actor("registry"))
