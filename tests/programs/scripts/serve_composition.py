"""An order passes through several deployments: some asked in parallel, some fed with each other's unfinished answers."""

import asyncio
import socket

import httpx
import ray
from ray import serve
from ray.serve.handle import DeploymentHandle, DeploymentResponse

PRICES = {"bolt": 0.25, "nut": 0.1, "gear": 12.5}


@serve.deployment
class Catalog:
    def price(self, article: str) -> float:
        return PRICES[article]

    async def known(self) -> list:
        return sorted(PRICES)


@serve.deployment
class Tax:
    def __init__(self, rates: dict):
        self.rates = rates

    async def __call__(self, net: float, country: str) -> float:
        return round(net * self.rates.get(country, 0), 4)


@serve.deployment
def shipping(net: float) -> float:
    return 0.0 if net > 20 else 4.5


@serve.deployment
class Total:
    async def __call__(self, *parts: float) -> float:
        return round(sum(parts), 4)


@serve.deployment
class Order:
    """The ingress. Its helpers come as one argument, a list and a dictionary."""

    def __init__(self, catalog: DeploymentHandle, charges: dict, rest: list):
        self.catalog = catalog
        self.charges = charges
        (self.total,) = rest

    async def net(self, articles: list) -> float:
        prices = await asyncio.gather(*[self.catalog.price.remote(article) for article in articles])
        return round(sum(prices), 4)

    async def quote(self, articles: list, country: str) -> dict:
        net = await self.net(articles)
        tax = self.charges["tax"].remote(net, country)
        ship = self.charges["shipping"].remote(net)
        # Both are still on their way: the callee gets their values.
        total = self.total.remote(net, tax, ship)
        return {"net": net, "tax": await tax, "shipping": await ship, "total": await total}

    async def __call__(self, request) -> dict:
        order = await request.json()
        return await self.quote(order["articles"], order["country"])


app = Order.bind(
    Catalog.bind(), {"tax": Tax.bind({"AT": 0.2, "CH": 0.081}), "shipping": shipping.bind()}, [Total.bind()]
)

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=8, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
handle = serve.run(app, name="shop", route_prefix="/quotes")
print("handle:", type(handle).__name__, handle.app_name, handle.deployment_name)

with httpx.Client(base_url=f"http://127.0.0.1:{PORT}") as client:
    for articles, country in ((["bolt", "bolt", "nut"], "AT"), (["gear", "gear"], "CH"), ([], "AT")):
        answer = client.post("/quotes", json={"articles": articles, "country": country})
        print(answer.status_code, answer.headers["content-type"], answer.json())

response = handle.quote.remote(["gear"], "XX")
print("response:", isinstance(response, DeploymentResponse), response.result(timeout_s=30))
print("net:", handle.net.remote(["nut"] * 7).result())
print("options:", handle.options(method_name="net").remote(["bolt"]).result())

catalog = serve.get_deployment_handle("Catalog", app_name="shop")
print("known:", catalog.known.remote().result())
prices = [catalog.price.remote(article) for article in ("nut", "bolt", "gear")]
print("in order:", [each.result() for each in prices])
total = serve.get_deployment_handle("Total", app_name="shop")
print("chained:", total.remote(catalog.price.remote("bolt"), catalog.price.remote("gear")).result())


@ray.remote
def in_a_task(handle, articles):
    return handle.net.remote(articles).result()


@ray.remote
class Buyer:
    def __init__(self, handle):
        self.handle = handle

    async def buy(self, article):
        return await self.handle.net.remote([article, article])


print("in a task:", ray.get(in_a_task.remote(handle, ["gear", "nut"])))
buyer = Buyer.remote(handle)
print("in an actor:", ray.get([buyer.buy.remote(article) for article in sorted(PRICES)]))


async def from_asyncio():
    return await asyncio.gather(*[handle.net.remote(["bolt"] * count) for count in range(5)])


print("in asyncio:", asyncio.run(from_asyncio()))
try:
    catalog.price.remote("anvil").result()
except KeyError as error:
    print("error:", isinstance(error, ray.exceptions.RayTaskError), "anvil" in str(error))
deployments = serve.status().applications["shop"].deployments
print({name: details.status.value for name, details in sorted(deployments.items())})
serve.shutdown()
