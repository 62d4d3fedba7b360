"""What a program learns about itself from ray.get_runtime_context()."""

import ray

ray.init(num_cpus=2, namespace="about", resources={"special": 1})


def shape(value):
    return len(value) if isinstance(value, str) else value


@ray.remote(num_cpus=0.5, resources={"special": 1})
def task():
    c = ray.get_runtime_context()
    return {
        "job": c.get_job_id(),
        "node": shape(c.get_node_id()),
        "task": shape(c.get_task_id()),
        "worker": shape(c.get_worker_id()),
        "name": c.get_task_name(),
        "function": c.get_task_function_name().split(".", 1)[1],
        "actor": c.get_actor_id(),
        "actor name": c.get_actor_name(),
        "namespace": c.namespace,
        "resources": sorted(c.get_assigned_resources().items()),
        "group": c.get_placement_group_id(),
    }


@ray.remote(num_cpus=1)
class Actor:
    def about(self):
        c = ray.get_runtime_context()
        return {
            "actor": shape(c.get_actor_id()),
            "name": c.get_actor_name(),
            "task": c.get_task_name(),
            "function": c.get_task_function_name().split(".", 1)[1],
            "restarted": c.was_current_actor_reconstructed,
            "resources": sorted(c.get_assigned_resources().items()),
            "self": repr(c.current_actor)[:12],
            "namespace": c.namespace,
        }

    def ids(self):
        c = ray.get_runtime_context()
        return c.get_task_id(), c.get_actor_id(), c.get_worker_id()


@ray.remote
def child(expected_job):
    return ray.get_runtime_context().get_job_id() == expected_job


@ray.remote
def parent():
    return ray.get(child.remote(ray.get_runtime_context().get_job_id()))


for key, value in ray.get(task.remote()).items():
    print(f"task {key}: {value}")
print("renamed:", ray.get(task.options(name="my task").remote())["name"])

actor = Actor.options(name="it").remote()
for key, value in ray.get(actor.about.remote()).items():
    print(f"actor {key}: {value}")
one, two = ray.get([actor.ids.remote(), actor.ids.remote()])
print("ids:", one[0] != two[0], one[1] == two[1] == actor._actor_id.hex(), one[2] == two[2])

c = ray.get_runtime_context()
print("driver:", c.get_job_id(), c.get_actor_id(), c.get_actor_name(), c.namespace)
print("driver task:", c.get_task_name(), c.get_task_function_name())
print("same node:", c.get_node_id() == ray.nodes()[0]["NodeID"])
print("same job:", ray.get(parent.remote()))
print("initialized:", ray.is_initialized())
