"""Nodes, resources and ids as a program sees them."""

import time

import ray

context = ray.init(num_cpus=3, num_gpus=0, resources={"disk": 2}, labels={"zone": "a"})

print("initialized:", ray.is_initialized(), "version:", isinstance(ray.__version__, str))
print(
    "context:",
    sorted(k for k in ("address", "node_id", "session_dir", "gcs_address") if k in context.address_info),
)
print("python:", context.python_version.count("."), context["node_id"] == context.address_info["node_id"])

[node] = ray.nodes()
for key in ("Alive", "alive"):
    print(key, node[key])
print("node id:", len(node["NodeID"]), node["NodeID"] == context.address_info["node_id"])
print("resources:", {k: node["Resources"][k] for k in ("CPU", "disk")})
print("labels:", node["Labels"].get("zone"), node["Labels"].get("ray.io/node-id") == node["NodeID"])
print("addresses:", sorted(k for k in node if "Address" in k))

total = ray.cluster_resources()
print(
    "cluster:",
    total["CPU"],
    total["disk"],
    "GPU" in total,
    total["memory"] > 0,
    total["object_store_memory"] > 0,
)
internal = [k for k in total if k.startswith("node:")]
print(
    "node resources:", sorted(k == "node:__internal_head__" for k in internal), [total[k] for k in internal]
)


@ray.remote(num_cpus=2, resources={"disk": 0.5})
class Holder:
    def available(self):
        return {k: ray.available_resources().get(k) for k in ("CPU", "disk")}


holder = Holder.remote()
ray.get(holder.__ray_ready__.remote())
for _ in range(3000):  # what the cluster says of itself may be a moment old
    if ray.available_resources().get("CPU") == 1:
        break
    time.sleep(0.02)
print("available:", ray.get(holder.available.remote()))
print("gpus:", ray.get_gpu_ids())
print("job id:", ray.get_runtime_context().get_job_id())

for cls, size in (
    (ray.JobID, 4),
    (ray.ActorID, 16),
    (ray.TaskID, 24),
    (ray.ObjectID, 28),
    (ray.NodeID, 28),
    (ray.WorkerID, 28),
    (ray.PlacementGroupID, 18),
):
    print(cls.__name__, cls.size() == size, cls.nil().is_nil(), len(cls.nil().hex()) == 2 * size)
print(ray.NodeID.from_hex(node["NodeID"]).hex() == node["NodeID"], ray.JobID.from_int(7).hex())

ray.shutdown()
print("initialized:", ray.is_initialized())
ray.shutdown()
with ray.init(num_cpus=1):
    print("again:", ray.cluster_resources()["CPU"])
print("initialized:", ray.is_initialized())
