"""A gang of actors in a placement group, all or nothing."""

import time

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

ray.init(num_cpus=4, resources={"slot": 2})


@ray.remote(num_cpus=1)
class Member:
    def __init__(self, rank):
        self.rank = rank

    def where(self):
        context = ray.get_runtime_context()
        return self.rank, context.get_placement_group_id() is not None

    def child(self):
        return ray.get(inner.remote())


@ray.remote(num_cpus=1)
def inner():
    return ray.util.get_current_placement_group() is not None


group = placement_group([{"CPU": 1}, {"CPU": 1, "slot": 1}], strategy="PACK", name="gang")
print("ready:", ray.get(group.ready(), timeout=30) is not None, group.wait(10))
print("bundles:", group.bundle_specs, group.bundle_count)
for _ in range(3000):  # what the cluster says of itself may be a moment old
    left = ray.available_resources()
    if left.get("CPU") == 2:
        break
    time.sleep(0.02)
print("left:", left.get("CPU"), left.get("slot"))

strategies = [PlacementGroupSchedulingStrategy(group, i) for i in range(2)]
members = [Member.options(scheduling_strategy=s).remote(i) for i, s in enumerate(strategies)]
print(ray.get([member.where.remote() for member in members]))

table = placement_group_table(group)
bundles = {index: sorted(bundle.items()) for index, bundle in sorted(table["bundles"].items())}
print(table["state"], table["strategy"], table["name"], bundles)

# A second group does not fit until the first is gone.
second = placement_group([{"CPU": 3}])
print("second waits:", not second.wait(0.2))
remove_placement_group(group)
print("second is ready:", second.wait(30))
for _ in range(3000):  # they are killed, which takes a moment
    try:
        ray.get(members[0].where.remote())
    except ray.exceptions.RayActorError as error:
        print("the members are gone:", type(error).__name__)
        break
    time.sleep(0.01)
print(placement_group_table(group)["state"])

captured = PlacementGroupSchedulingStrategy(second, placement_group_capture_child_tasks=True)
actor = Member.options(scheduling_strategy=captured).remote(9)
print("child captured:", ray.get(actor.child.remote()))
free = PlacementGroupSchedulingStrategy(second)
ray.kill(actor)
other = Member.options(scheduling_strategy=free).remote(9)
print("child captured:", ray.get(other.child.remote()))

try:
    placement_group([{"CPU": 1}], strategy="SOMEHOW")
except ValueError:
    print("ValueError")
try:
    placement_group([])
except ValueError:
    print("ValueError")
