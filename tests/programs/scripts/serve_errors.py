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
ray.init(num_cpus=16, log_to_driver=False)
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


async def pressure(send):
    """Sends more and more until one is refused; only then those before it go on."""
    tasks = []
    while not any(task.done() for task in tasks) and len(tasks) < 50:
        tasks.append(asyncio.create_task(send()))
        await asyncio.wait(tasks, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
    refused = [task for task in tasks if task.done()]
    open(flag, "w").close()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    os.remove(flag)
    return [task.result() if not task.exception() else task.exception() for task in refused], answers


async def over_http():
    async with httpx.AsyncClient(base_url=base, timeout=60) as client:
        return await pressure(lambda: client.get("/queue", params={"path": flag}))


async def call():
    return await queue.remote(flag)


refused, answers = asyncio.run(over_http())
print(
    "back pressure:", [answer.status_code for answer in refused], {answer.status_code for answer in answers}
)
print("at least three were taken:", sum(answer.status_code == 200 for answer in answers) >= 3)
refused, answers = asyncio.run(pressure(call))
print(
    "by handle:",
    [type(error) is BackPressureError for error in refused],
    isinstance(refused[0], RayServeException),
)
print("the others:", {answer for answer in answers if isinstance(answer, str)})

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
        print("refused:", wrong, "ValueError" if isinstance(error, ValueError) else "TypeError")
serve.shutdown()
