"""A workflow with compensation: when a later step fails, what was done is undone in reverse order."""

import ray


@ray.remote
class Journal:
    def __init__(self):
        self.lines = []

    def write(self, line):
        self.lines.append(line)

    def read(self):
        return self.lines


class OutOfStock(Exception):
    def __init__(self, item):
        super().__init__(item)
        self.item = item

    def __reduce__(self):
        return OutOfStock, (self.item,)


@ray.remote(max_retries=0)
def do(journal, step, order):
    if step == "ship" and order["item"] == "unicorn":
        raise OutOfStock(order["item"])
    ray.get(journal.write.remote(f"{step} {order['id']}"))
    return step


@ray.remote
def run_saga(journal, order):
    done = []
    try:
        for step in ("reserve", "charge", "ship"):
            done.append(ray.get(do.remote(journal, step, order)))
        return "done"
    except OutOfStock as error:
        for step in reversed(done):
            ray.get(journal.write.remote(f"undo {step} {order['id']}"))
        return f"undone, no {error.item}"


ray.init(num_cpus=2)
journal = Journal.remote()
for order in ({"id": 1, "item": "book"}, {"id": 2, "item": "unicorn"}, {"id": 3, "item": "pen"}):
    print(order["id"], ray.get(run_saga.remote(journal, order)))
print(ray.get(journal.read.remote()))
