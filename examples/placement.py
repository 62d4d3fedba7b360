"""Placement groups: resources reserved together, so that what belongs together starts together."""

import runtime as ray
from runtime.util import placement_group, remove_placement_group
from runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy

ray.init()


@ray.remote(num_cpus=1)
class Worker:
    def where(self) -> str:
        return ray.get_runtime_context().get_node_id()


group = placement_group([{"CPU": 1}] * 2, strategy="PACK")
if not group.wait(timeout_seconds=60):
    raise SystemExit("no room for two bundles of one CPU")

workers = [
    Worker.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, index)).remote()
    for index in range(group.bundle_count)
]
for index, node in enumerate(ray.get([worker.where.remote() for worker in workers])):
    print(f"bundle {index} is on node {node[:12]}")
remove_placement_group(group)
