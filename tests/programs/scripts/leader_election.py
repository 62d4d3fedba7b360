"""A named actor as a lock: one of several contenders gets it; when it ends, the next one does."""

import ray


@ray.remote
class Leader:
    def __init__(self, who):
        self.who, self.term = who, 1

    def get(self):
        return self.who

    def lead(self, n):
        self.term += n
        return self.term


@ray.remote
def contend(who):
    try:
        Leader.options(name="leader", lifetime="detached").remote(who)
        return True
    except ValueError as error:
        return "leader" in str(error) and False


ray.init(num_cpus=3, namespace="election")
won = ray.get([contend.remote(f"c{i}") for i in range(5)])
print(sorted(won))
winner = ray.get_actor("leader")
print(ray.get(winner.get.remote()) == f"c{won.index(True)}", ray.get(winner.lead.remote(4)))
same = Leader.options(name="leader", get_if_exists=True, lifetime="detached").remote("late")
print(ray.get(same.get.remote()) == ray.get(winner.get.remote()), ray.get(same.lead.remote(1)))
ray.kill(winner)
while True:
    try:
        following = Leader.options(name="leader").remote("next")
        break
    except ValueError:
        pass
print(ray.get(ray.get_actor("leader").get.remote()), ray.get(following.lead.remote(0)))
try:
    ray.get_actor("nobody")
except ValueError as error:
    print("nobody" in str(error))
print(ray.util.list_named_actors())
