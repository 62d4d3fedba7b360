"""Named actors in namespaces."""

import ray

ray.init(num_cpus=4, namespace="blue")


@ray.remote(num_cpus=0)
class Box:
    def __init__(self, content):
        self.content = content

    def get(self):
        return self.content


@ray.remote
def find(name, namespace=None):
    handle = ray.get_actor(name, namespace) if namespace else ray.get_actor(name)
    return ray.get(handle.get.remote())


blue = Box.options(name="box").remote("blue")
red = Box.options(name="box", namespace="red").remote("red")
ray.get([blue.get.remote(), red.get.remote()])

print(ray.get(ray.get_actor("box").get.remote()))
print(ray.get(ray.get_actor("box", namespace="red").get.remote()))
print(ray.get(find.remote("box")), ray.get(find.remote("box", "red")))
print(ray.get_runtime_context().namespace)
print(ray.util.list_named_actors())
print(sorted((a["namespace"], a["name"]) for a in ray.util.list_named_actors(all_namespaces=True)))

for name, namespace in (("crate", None), ("box", "green")):
    try:
        ray.get_actor(name, namespace=namespace)
    except ValueError as error:
        print("ValueError", name in str(error))

try:
    Box.options(name="box").remote("again")
except ValueError as error:
    print("taken:", "box" in str(error))
for bad in ("", 5):
    try:
        Box.options(name=bad).remote("x")
        print("accepted")
    except (ValueError, TypeError) as error:
        print(type(error).__name__)
try:
    ray.get_actor("")
except ValueError:
    print("an empty name is refused")

del blue
for _ in range(2000):
    if not ray.util.list_named_actors():
        break
print("gone with its handle:", ray.util.list_named_actors())
again = Box.options(name="box").remote("new")
print(ray.get(again.get.remote()))
