"""A tree of actors: each inner node makes its children and adds up what they answer."""

import ray

ray.init(num_cpus=4)


@ray.remote(num_cpus=0)
class Node:
    def __init__(self, name, depth, fanout):
        self.name = name
        self.children = []
        if depth > 0:
            self.children = [Node.remote(f"{name}.{i}", depth - 1, fanout) for i in range(fanout)]

    def count(self):
        return 1 + sum(ray.get([child.count.remote() for child in self.children]))

    def total(self, weight):
        mine = sum(int(part) for part in self.name.split(".")) * weight
        return mine + sum(ray.get([child.total.remote(weight) for child in self.children]))

    def leaves(self):
        if not self.children:
            return [self.name]
        found = ray.get([child.leaves.remote() for child in self.children])
        return [leaf for leaves in found for leaf in leaves]

    def child(self, index):
        return self.children[index]

    def get_name(self):
        return self.name


root = Node.remote("0", depth=2, fanout=3)
print("nodes:", ray.get(root.count.remote()))
print("total:", ray.get(root.total.remote(10)))
print("leaves:", ray.get(root.leaves.remote()))

# Walk down by handles that come back from calls.
node = root
path = []
for index in (2, 1):
    node = ray.get(node.child.remote(index))
    path.append(ray.get(node.get_name.remote()))
print("path:", path)
