"""What a client and a caller see when something is wrong: user errors, unknown paths, back pressure, broken constructors."""

import asyncio
import os
import signal
import socket
import threading
import time

import httpx
import ray
from ray import serve
from ray.serve.exceptions import BackPressureError, RayServeException
from starlette.responses import JSONResponse, PlainTextResponse


class Refusal(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.code = code


@serve.deployment
class Errors:
    async def __call__(self, request):
        kind = request.query_params.get("kind")
        if kind == "value":
            raise ValueError("a wrong value")
        if kind == "status":
            return PlainTextResponse("a teapot", status_code=418)
        if kind == "json":
            return JSONResponse({"error": "conflict"}, status_code=409, headers={"retry-after": "3"})
        return {"kind": kind, "path": request.url.path, "method": request.method}

    def refuse(self, code):
        raise Refusal(code)

    async def unserializable(self):
        return threading.Lock()

    async def echo(self, value):
        return value


@serve.deployment
class Broken:
    def __init__(self):
        raise RuntimeError("the model file is missing")

    def __call__(self, request):
        return "never"


@serve.deployment(max_ongoing_requests=1, max_queued_requests=2)
class Queue:
    """Its requests wait until a file is there."""

    async def __call__(self, path):
        if not isinstance(path, str):
            path = path.query_params["path"]
        while not os.path.exists(path):
            await asyncio.sleep(0.02)
        return "through"


@serve.deployment(health_check_period_s=0.2)
class Mortal:
    async def __call__(self, request):
        return "alive"

    async def pid(self):
        return os.getpid()

    async def die(self):
        os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(60)


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=8, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
base = f"http://127.0.0.1:{PORT}"
client = httpx.Client(base_url=base, timeout=60)
handle = serve.run(Errors.bind(), name="errors", route_prefix="/errors")

for kind in ("value", "status", "json", "none"):
    answer = client.get("/errors", params={"kind": kind})
    print(f"{kind}:", answer.status_code, answer.text if kind != "value" else answer.text.splitlines()[0])
print("after it:", client.get("/errors/below").json(), answer.headers.get("retry-after"))
unknown = client.get("/elsewhere")
print("unknown:", unknown.status_code, "/elsewhere" in unknown.text)
print("health:", client.get("/-/healthz").status_code, client.get("/-/healthz").text)
print("routes:", client.get("/-/routes").json())
print("HEAD:", client.head("/errors").status_code, client.head("/errors").content)

try:
    handle.refuse.remote(7).result()
except Refusal as error:
    print(
        "refusal:",
        isinstance(error, ray.exceptions.RayTaskError),
        error.code if hasattr(error, "code") else None,
    )
try:
    handle.missing.remote().result()
except Exception as error:
    print("no such method:", "missing" in str(error))
try:
    handle.unserializable.remote().result()
except Exception as error:
    print("a result that cannot be sent:", "lock" in str(error))
try:
    handle.echo.remote(threading.Lock()).result()
except TypeError as error:
    print("an argument that cannot be sent:", "lock" in str(error))
print("and on:", handle.echo.remote([1, {"two": 2.0}]).result())

flag = f"/tmp/serve-errors-{os.getpid()}"
queue = serve.run(Queue.bind(), name="queue", route_prefix="/queue")


async def pressure():
    async with httpx.AsyncClient(base_url=base, timeout=60) as client:
        requests = [asyncio.create_task(client.get("/queue", params={"path": flag})) for _ in range(6)]
        refused = 0
        while refused < 3:
            refused = sum(request.done() for request in requests)
            await asyncio.sleep(0.02)
        codes = sorted(request.result().status_code for request in requests if request.done())
        open(flag, "w").close()
        answers = await asyncio.gather(*requests)
        return codes, sorted(answer.status_code for answer in answers)


print("back pressure:", *asyncio.run(pressure()))
os.remove(flag)
responses = [queue.remote(flag) for _ in range(6)]
time.sleep(0.5)
open(flag, "w").close()
found = []
for response in responses:
    try:
        found.append(response.result(timeout_s=60))
    except BackPressureError as error:
        found.append("refused" if isinstance(error, RayServeException) else "another error")
print("by handle:", found.count("through"), found.count("refused"))
os.remove(flag)

try:
    serve.run(Broken.bind(), name="broken", route_prefix="/broken")
except RuntimeError as error:
    print("constructor:", "broken" in str(error))
status = serve.status().applications["broken"]
print("status:", status.status.value)
print("its reason:", "the model file is missing" in status.deployments["Broken"].message)
print("the others run:", client.get("/errors").status_code)
serve.delete("broken")
print("deleted:", "broken" in serve.status().applications)

mortal = serve.run(Mortal.bind(), name="mortal", route_prefix="/mortal")
pid = mortal.pid.remote().result()
try:
    mortal.die.remote().result(timeout_s=60)
except ray.exceptions.RayActorError:
    print("its replica died")
again = None
end = time.monotonic() + 60
while again in (None, pid) and time.monotonic() < end:
    try:
        again = mortal.pid.remote().result(timeout_s=60)
    except ray.exceptions.RayActorError:
        time.sleep(0.1)
print("another replica:", again is not None and again != pid, client.get("/mortal").text)
for wrong in ({"max_ongoing_requests": 0}, {"num_replicas": 0}, {"num_replicas": -1}, {"nothing": 1}):
    try:
        serve.deployment(**wrong)(lambda: None)
        print("accepted:", wrong)
    except (TypeError, ValueError) as error:
        print("refused:", wrong, type(error).__name__)
serve.shutdown()
