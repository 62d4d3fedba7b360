"""Breadth-first search over a graph whose parts live in actors; frontiers are exchanged as messages."""

from collections import defaultdict

import ray


@ray.remote
class Part:
    def __init__(self, edges):
        self.edges = edges
        self.distance = {}

    def visit(self, step, nodes):
        fresh = [n for n in nodes if n not in self.distance]
        self.distance.update(dict.fromkeys(fresh, step))
        return sorted({target for n in fresh for target in self.edges.get(n, ())})

    def distances(self):
        return self.distance


ray.init(num_cpus=3)
edges = defaultdict(list)
for i in range(60):
    for j in (i + 1, i * 3 % 61, i + 7):
        if j < 60:
            edges[i].append(j)
parts = [Part.remote({n: t for n, t in edges.items() if n % 3 == p}) for p in range(3)]
frontier, step = [0], 0
while frontier:
    owners = defaultdict(list)
    for node in frontier:
        owners[node % 3].append(node)
    found = ray.get([parts[p].visit.remote(step, nodes) for p, nodes in sorted(owners.items())])
    frontier, step = sorted(set().union(*found)), step + 1
merged = {}
for distances in ray.get([p.distances.remote() for p in parts]):
    merged.update(distances)
print(step, len(merged), sum(merged.values()), max(merged.values()))
print([n for n, d in sorted(merged.items()) if d == max(merged.values())])
