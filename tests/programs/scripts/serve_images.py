"""Text becomes an image, as a diffusion model would make one: a drawer, an enlarger, and an API that gives PNG files."""

import hashlib
import io
import socket

import httpx
import ray
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import Response
from PIL import Image, ImageDraw, ImageOps
from pydantic import BaseModel
from ray import serve

COLORS = {"red": (200, 30, 30), "green": (30, 160, 60), "blue": (40, 60, 200)}
api = FastAPI()


class Prompt(BaseModel):
    text: str
    size: int = 64
    factor: int = 1


def png(image):
    store = io.BytesIO()
    image.save(store, "PNG")
    return Response(store.getvalue(), media_type="image/png")


@serve.deployment
class Drawer:
    """Draws what it understands of a prompt; the background comes of its digest."""

    def draw(self, text: str, size: int) -> Image.Image:
        digest = hashlib.sha256(text.encode()).digest()
        image = Image.new("RGB", (size, size), tuple(200 + value % 56 for value in digest[:3]))
        pencil = ImageDraw.Draw(image)
        words = text.lower().split()
        color = next((COLORS[word] for word in words if word in COLORS), (0, 0, 0))
        quarter = size // 4
        box = (quarter, quarter, size - quarter - 1, size - quarter - 1)
        if "circle" in words:
            pencil.ellipse(box, fill=color)
        elif "square" in words:
            pencil.rectangle(box, fill=color)
        else:
            raise ValueError(f"cannot draw {text!r}")
        return image


@serve.deployment
class Enlarger:
    async def __call__(self, image: Image.Image, factor: int) -> Image.Image:
        return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


@serve.deployment
@serve.ingress(api)
class Studio:
    def __init__(self, drawer, enlarger):
        self.drawer = drawer
        self.enlarger = enlarger

    @api.post("/images", response_class=Response, responses={200: {"content": {"image/png": {}}}})
    async def image(self, prompt: Prompt):
        try:
            image = await self.enlarger.remote(
                self.drawer.draw.remote(prompt.text, prompt.size), prompt.factor
            )
        except ValueError as error:
            raise HTTPException(422, "this prompt means nothing to the drawer") from error
        return png(image)

    @api.post("/thumbnails")
    async def thumbnail(self, request: Request, side: int = 8):
        image = Image.open(io.BytesIO(await request.body()))
        return png(ImageOps.fit(image, (side, side), Image.Resampling.NEAREST))

    @api.post("/inverted")
    def inverted(self, prompt: Prompt):
        image = self.drawer.draw.remote(prompt.text, prompt.size)
        return {"type": type(image).__name__}


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=4, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
handle = serve.run(Studio.bind(Drawer.bind(), Enlarger.bind()), name="studio", route_prefix="/studio")
client = httpx.Client(base_url=f"http://127.0.0.1:{PORT}/studio", timeout=60)


def look(answer):
    image = Image.open(io.BytesIO(answer.content))
    image.load()
    middle, corner = (image.width // 2, image.height // 2), (0, 0)
    colors = sorted(count for count, _ in image.getcolors())
    return image.format, image.size, image.getpixel(middle), image.getpixel(corner), colors


for text in ("a red square", "a blue circle", "Green SQUARE", "circle"):
    answer = client.post("/images", json={"text": text, "size": 32})
    print(f"{text}:", answer.status_code, answer.headers["content-type"], *look(answer))
small = client.post("/images", json={"text": "a red square", "size": 16})
large = client.post("/images", json={"text": "a red square", "size": 16, "factor": 20})
print("enlarged:", *look(large), int(large.headers["content-length"]) == len(large.content))
back = client.post("/thumbnails", params={"side": 16}, content=large.content)
same = Image.open(io.BytesIO(back.content)).tobytes() == Image.open(io.BytesIO(small.content)).tobytes()
print("and back:", look(back)[1], same)
answer = client.post("/images", json={"text": "a dream"})
print("meaningless:", answer.status_code, answer.json())
print("no image:", client.post("/thumbnails", content=b"no image at all").status_code)
print("a handle's response:", client.post("/inverted", json={"text": "a red circle"}).json())
drawer = serve.get_deployment_handle("Drawer", "studio")
images = [drawer.draw.remote("green circle", size) for size in (8, 400, 1600)]
print("by handle:", [(each.size, each.getpixel((0, 0))) for each in (i.result() for i in images)])
serve.shutdown()
