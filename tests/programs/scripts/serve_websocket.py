"""WebSockets in a deployment: text, bytes and JSON, rooms, close codes, queries, and many at once."""

import asyncio
import json
import socket

import ray
import websockets
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from ray import serve
from websockets.sync.client import connect

api = FastAPI()


@serve.deployment(max_ongoing_requests=50)
@serve.ingress(api)
class Chat:
    def __init__(self):
        self.rooms = {}
        self.left = []

    @api.websocket("/echo")
    async def echo(self, ws: WebSocket):
        await ws.accept()
        try:
            while True:
                message = await ws.receive()
                if message["type"] == "websocket.disconnect":
                    break
                if message.get("text") is not None:
                    await ws.send_text(message["text"][::-1])
                else:
                    await ws.send_bytes(bytes(reversed(message["bytes"])))
        finally:
            self.left.append("echo")

    @api.websocket("/sums")
    async def sums(self, ws: WebSocket, start: int = 0):
        await ws.accept(headers=[(b"x-start", str(start).encode())])
        total = start
        while True:
            order = await ws.receive_json()
            if order["add"] is None:
                break
            total += order["add"]
            await ws.send_json({"total": total})
        await ws.close(code=3100, reason=f"total {total}")

    @api.websocket("/rooms/{room}")
    async def room(self, ws: WebSocket, room: str):
        if room == "private":
            await ws.close(code=4403)
            return
        await ws.accept(subprotocol="chat" if "chat" in ws.scope["subprotocols"] else None)
        members = self.rooms.setdefault(room, [])
        members.append(ws)
        await ws.send_text(f"welcome to {room}, number {len(members)}")
        try:
            while True:
                text = await ws.receive_text()
                await asyncio.gather(*[member.send_text(text) for member in members])
        except WebSocketDisconnect as end:
            members.remove(ws)
            self.left.append(f"{room} {end.code}")

    @api.get("/left")
    async def all_left(self):
        return sorted(self.left)

    @api.websocket("/breaks")
    async def breaks(self, ws: WebSocket):
        await ws.accept()
        await ws.send_text("soon")
        raise RuntimeError("an error of the application")


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=4, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
serve.run(Chat.bind(), route_prefix="/chat")
BASE = f"ws://127.0.0.1:{PORT}/chat"

with connect(f"{BASE}/echo") as ws:
    for message in ("stressed", "", "äöü", b"\x00\x01\x02", "x" * 70_000):
        ws.send(message)
        back = ws.recv(timeout=60)
        print("echo:", type(back).__name__, len(back), back if len(back) < 20 else back == message)
    for number in range(100):
        ws.send(str(number))
    print("pipelined:", [ws.recv(timeout=60) for _ in range(100)] == [str(n)[::-1] for n in range(100)])
    print("ping:", ws.ping().wait(60))

with connect(f"{BASE}/sums?start=40") as ws:
    print("handshake:", ws.response.status_code, ws.response.headers["x-start"])
    for number in (1, 1, 8):
        ws.send(json.dumps({"add": number}))
        print("sum:", json.loads(ws.recv(timeout=60)))
    ws.send(json.dumps({"add": None}))
    try:
        ws.recv(timeout=60)
    except websockets.ConnectionClosed as end:
        print("closed:", end.rcvd.code, end.rcvd.reason)

try:
    connect(f"{BASE}/rooms/private")
except websockets.InvalidStatus as error:
    print("refused:", error.response.status_code)
try:
    connect(f"{BASE}/nowhere")
except websockets.InvalidStatus as error:
    print("unknown:", error.response.status_code)

with (
    connect(f"{BASE}/rooms/tea", subprotocols=["other", "chat"]) as first,
    connect(f"{BASE}/rooms/tea") as second,
):
    print(first.recv(timeout=60), "|", second.recv(timeout=60), "|", first.subprotocol, second.subprotocol)
    first.send("hello")
    print("first:", first.recv(timeout=60), "second:", second.recv(timeout=60))
    second.send("hello yourself")
    print("first:", first.recv(timeout=60), "second:", second.recv(timeout=60))
    second.close(code=4001)
    first.send("alone?")
    print("first:", first.recv(timeout=60))

with connect(f"{BASE}/breaks") as ws:
    print("breaks:", ws.recv(timeout=60))
    try:
        ws.recv(timeout=60)
    except websockets.ConnectionClosed as end:
        print("closed, not as if all were well:", end.rcvd is None or end.rcvd.code == 1011)


async def many(count):
    async def one(number):
        async with websockets.connect(f"{BASE}/echo") as ws:
            await ws.send(f"<{number}>")
            return await ws.recv()

    return await asyncio.gather(*[one(number) for number in range(count)])


print("many:", sorted(asyncio.run(many(12)))[:3])
handle = serve.get_app_handle("default")


async def left():
    for _ in range(500):
        found = await handle.all_left.remote()
        if len(found) >= 15:
            return found
        await asyncio.sleep(0.02)
    return found


found = asyncio.run(left())
print("left:", len(found), [each for each in found if each != "echo"])
serve.shutdown()
