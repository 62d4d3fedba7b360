"""A threaded actor: methods run side by side and share state under a lock."""

import threading
import time

import ray

ray.init(num_cpus=4)


@ray.remote(max_concurrency=4)
class Inventory:
    def __init__(self):
        self.lock = threading.Lock()
        self.stock = {"apple": 10, "pear": 5}
        self.threads = set()
        self.barrier = threading.Barrier(4)

    def meet(self):
        """Returns only when four calls run at once."""
        self.barrier.wait(timeout=30)
        return True

    def take(self, item, n):
        with self.lock:
            self.threads.add(threading.get_ident())
            have = self.stock[item]
            time.sleep(0.001)
            if have < n:
                return False
            self.stock[item] = have - n
            return True

    def report(self):
        return dict(self.stock)


@ray.remote(max_concurrency=2)
class Rendezvous:
    def __init__(self):
        self.event = threading.Event()

    def wait_for_signal(self):
        self.event.wait()
        return "signalled"

    def signal(self):
        self.event.set()


@ray.remote
def shop(inventory, item, n):
    return sum(ray.get([inventory.take.remote(item, 1) for _ in range(n)]))


inventory = Inventory.remote()
print("four at once:", ray.get([inventory.meet.remote() for _ in range(4)]))
bought = ray.get([shop.remote(inventory, "apple", 4) for _ in range(4)])
print("apples:", sum(bought), ray.get(inventory.report.remote()))
print("too many:", ray.get(inventory.take.remote("pear", 6)))

meeting = Rendezvous.remote()
waiting = meeting.wait_for_signal.remote()
ray.get(meeting.signal.remote())
print(ray.get(waiting))

single = Inventory.options(max_concurrency=1).remote()
results = ray.get([single.take.remote("pear", 1) for _ in range(7)])
print("in order:", results)
