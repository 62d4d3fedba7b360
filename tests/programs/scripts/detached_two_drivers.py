"""A detached actor outlives the driver that made it; a second driver of the cluster finds it."""

import subprocess
import sys
import textwrap

import ray

FIRST = """
    import ray
    ray.init(address=ADDRESS, namespace="shared", log_to_driver=False)

    @ray.remote
    class Counter:
        def __init__(self):
            self.n = 0

        def add(self, by):
            self.n += by
            return self.n

    kept = Counter.options(name="kept", lifetime="detached").remote()
    lost = Counter.options(name="lost").remote()
    print("first:", ray.get([kept.add.remote(5), lost.add.remote(1)]))
"""

SECOND = """
    import ray
    ray.init(address=ADDRESS, namespace="shared", log_to_driver=False)
    kept = ray.get_actor("kept")
    print("second:", ray.get(kept.add.remote(10)))
    try:
        ray.get_actor("lost")
        print("second: the other one is there")
    except ValueError:
        print("second: the other one is gone")
"""

THIRD = """
    import ray
    ray.init(address=ADDRESS, log_to_driver=False)
    try:
        ray.get_actor("kept")
    except ValueError:
        print("third: not in my namespace")
    kept = ray.get_actor("kept", namespace="shared")
    print("third:", ray.get(kept.add.remote(100)))
    ray.kill(kept)
"""


def run(program, address):
    text = "import sys\nADDRESS = sys.argv[1]\n" + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", text, address], capture_output=True, text=True, timeout=60)
    print(done.stdout, end="")
    if done.returncode:
        print("failed:", done.stderr[-1500:])


context = ray.init(num_cpus=2)
address = context.address_info["address"]
for program in (FIRST, SECOND, THIRD):
    run(program, address)
try:
    ray.get_actor("kept", namespace="shared")
except ValueError:
    print("here: gone after kill")
