"""What a program learns of its job, node, task and actor, from inside and outside."""

import ray

ray.init(num_cpus=2, namespace="space", job_config=ray.job_config.JobConfig(metadata={"team": "blue"}))


@ray.remote(num_cpus=1, resources={})
def inside():
    context = ray.get_runtime_context()
    return {
        "job": context.get_job_id(),
        "node": context.get_node_id(),
        "task": context.get_task_id() is not None,
        "name": context.get_task_name(),
        "function": context.get_task_function_name().rsplit(".", 1)[-1],
        "actor": context.get_actor_id(),
        "namespace": context.namespace,
        "resources": context.get_assigned_resources(),
        "mode": ray._private.worker.global_worker.mode == ray.WORKER_MODE,
    }


@ray.remote
class Me:
    def who(self):
        context = ray.get_runtime_context()
        handle = context.current_actor
        return (
            context.get_actor_id(),
            context.get_actor_name(),
            context.was_current_actor_reconstructed,
            handle,
        )

    def hello(self):
        return "hello"


outside = ray.get_runtime_context()
seen = ray.get(inside.options(name="renamed").remote())
print(seen["job"] == outside.get_job_id(), seen["node"] == outside.get_node_id(), seen["task"])
print(seen["name"], seen["function"], seen["actor"], seen["namespace"], seen["resources"], seen["mode"])
me = Me.options(name="me").remote()
actor_id, name, again, handle = ray.get(me.who.remote())
print(actor_id == me._actor_id.hex(), name, again, ray.get(handle.hello.remote()))
print(outside.get_actor_id(), outside.get_task_id(), ray.is_initialized())
nodes = ray.nodes()
print(len(nodes), nodes[0]["Alive"], nodes[0]["Resources"]["CPU"], sorted(nodes[0]["Labels"])[:1])
print(ray.cluster_resources()["CPU"], len(ray.get_gpu_ids()))
ray.shutdown()
print(ray.is_initialized())
try:
    ray.get_runtime_context().get_job_id()
except Exception as error:
    print(type(error).__name__)
