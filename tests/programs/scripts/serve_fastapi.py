"""A FastAPI application whose routes are methods of a deployment: models, parameters, dependencies, errors, routers."""

import socket
from typing import Annotated

import httpx
import ray
from fastapi import Cookie, Depends, FastAPI, Header, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field
from ray import serve

api = FastAPI(title="Library", version="1.2")


class Book(BaseModel):
    title: str = Field(min_length=1)
    pages: int = Field(gt=0)
    tags: list[str] = []


class Stored(Book):
    number: int


class Overdue(Exception):
    def __init__(self, days):
        self.days = days


@api.exception_handler(Overdue)
async def overdue(request: Request, error: Overdue):
    return JSONResponse({"fine": error.days * 0.5, "path": request.url.path}, status_code=402)


@api.middleware("http")
async def stamp(request: Request, call_next):
    response = await call_next(request)
    response.headers["x-library"] = request.method.lower()
    return response


def reader(authorization: Annotated[str | None, Header()] = None) -> str:
    if authorization is None or not authorization.startswith("Card "):
        raise HTTPException(401, "show your card", headers={"www-authenticate": "Card"})
    return authorization.removeprefix("Card ")


def page(first: int = 0, limit: Annotated[int, Query(ge=1, le=3)] = 2) -> slice:
    return slice(first, first + limit)


@serve.deployment
@serve.ingress(api)
class Library:
    def __init__(self, name: str):
        self.name = name
        self.books: dict[int, Stored] = {}

    @api.get("/")
    def home(self):
        return f"library {self.name}"

    @api.post("/books", status_code=201)
    async def add(self, book: Book, who: Annotated[str, Depends(reader)]) -> Stored:
        number = len(self.books) + 1
        self.books[number] = Stored(number=number, **book.model_dump())
        return self.books[number]

    @api.get("/books/{number}", response_model=Stored, response_model_exclude={"tags"})
    def one(self, number: int):
        if number not in self.books:
            raise HTTPException(404, f"no book {number}")
        return self.books[number]

    @api.get("/books")
    async def several(self, part: Annotated[slice, Depends(page)], tag: Annotated[list[str], Query()] = []):
        found = [book for book in self.books.values() if set(tag) <= set(book.tags)]
        return [book.title for book in found[part]]

    @api.delete("/books/{number}", status_code=204)
    async def remove(self, number: int):
        self.books.pop(number, None)

    @api.put("/late/{days}")
    async def late(self, days: int):
        raise Overdue(days)

    @api.get("/visits")
    async def visits(self, response: Response, visits: Annotated[int, Cookie()] = 0):
        response.set_cookie("visits", str(visits + 1))
        return {"visits": visits}

    @api.get("/text", response_class=PlainTextResponse)
    def text(self):
        return "plain"


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=4, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
serve.run(Library.bind("north"), route_prefix="/v1")
client = httpx.Client(base_url=f"http://127.0.0.1:{PORT}/v1")


def show(what, answer):
    body = answer.json() if answer.headers.get("content-type") == "application/json" else answer.text
    print(f"{what}:", answer.status_code, body)


show("home", client.get("/"))
show("without a card", client.post("/books", json={"title": "Atlas", "pages": 10}))
card = {"authorization": "Card 7"}
for title, pages, tags in (("Atlas", 320, ["maps"]), ("Birds", 90, ["nature", "maps"]), ("Clocks", 41, [])):
    show("add", client.post("/books", json={"title": title, "pages": pages, "tags": tags}, headers=card))
show("one", client.get("/books/2"))
show("none", client.get("/books/9"))
show("several", client.get("/books"))
show("several, the next", client.get("/books", params={"first": 1, "limit": 3}))
show("several, by tags", client.get("/books", params={"tag": ["maps", "nature"]}))
refused = client.get("/books", params={"limit": 8})
print("limit:", refused.status_code, [(each["loc"], each["type"]) for each in refused.json()["detail"]])
refused = client.post("/books", json={"title": "", "pages": "many"}, headers=card)
print("model:", refused.status_code, [(each["loc"], each["type"]) for each in refused.json()["detail"]])
gone = client.delete("/books/1")
print("delete:", gone.status_code, repr(gone.content))
show("deleted", client.get("/books/1"))
show("late", client.put("/late/6"))
show("visits", client.get("/visits"))
show("visits", client.get("/visits"))
show("text", client.get("/text"))
print("middleware:", client.get("/text").headers["x-library"], client.delete("/books/3").headers["x-library"])
wrong = client.patch("/books")
print("method:", wrong.status_code, wrong.json(), sorted(wrong.headers["allow"].split(", ")))
show("unknown", client.get("/nowhere"))
head = client.request("OPTIONS", "/books")
print("options:", head.status_code)
schema = client.get("/openapi.json").json()
print("schema:", schema["info"], sorted(schema["paths"]))
print("docs:", client.get("/docs").status_code, "swagger" in client.get("/docs").text.lower())
print("outside:", httpx.get(f"http://127.0.0.1:{PORT}/elsewhere").status_code)
serve.shutdown()
