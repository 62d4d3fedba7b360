"""scikit-learn and XGBoost models behind one API: a flower classifier, digits in batches, and an ensemble that votes."""

import asyncio
import collections
import socket

import httpx
import numpy as np
import ray
import xgboost
from ray import serve
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def trained_flowers():
    data = load_iris()
    trees = xgboost.XGBClassifier(n_estimators=20, max_depth=3, random_state=0, n_jobs=1)
    members = {
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
        "neighbours": KNeighborsClassifier(5),
        "trees": trees,
    }
    for member in members.values():
        member.fit(data.data[::2], data.target[::2])
    return members, [str(name) for name in data.target_names]


@serve.deployment
class Member:
    """One classifier; its model comes as an argument."""

    def __init__(self, model):
        self.model = model

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return self.model.predict(rows).astype(int)


@serve.deployment
class Ensemble:
    def __init__(self, members, names):
        self.members = members
        self.names = names

    async def vote(self, rows):
        rows = np.array(rows)
        found = await asyncio.gather(*[member.predict.remote(rows) for member in self.members.values()])
        votes = []
        for each in zip(*found):
            [(label, count)] = collections.Counter(int(one) for one in each).most_common(1)
            votes.append({"flower": self.names[label], "agree": count})
        return votes

    async def __call__(self, request):
        return {"votes": await self.vote((await request.json())["rows"])}


@serve.deployment(max_ongoing_requests=100)
class Digits:
    def __init__(self):
        images, labels = load_digits(return_X_y=True)
        self.model = KNeighborsClassifier(3).fit(images[:1200], labels[:1200])
        self.batches = []

    @serve.batch(max_batch_size=25, batch_wait_timeout_s=60)
    async def predict(self, rows):
        self.batches.append(len(rows))
        return [int(label) for label in self.model.predict(np.array(rows))]

    async def sizes(self):
        return self.batches

    async def __call__(self, request):
        return await self.predict(await request.json())


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=8, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
models, names = trained_flowers()
members = {name: Member.options(name=name).bind(model) for name, model in models.items()}
flowers = serve.run(Ensemble.bind(members, names), name="flowers", route_prefix="/flowers")
digits = serve.run(Digits.bind(), name="digits", route_prefix="/digits")
base = f"http://127.0.0.1:{PORT}"

rows = load_iris().data[[1, 51, 101, 149]]
answer = httpx.post(f"{base}/flowers", json={"rows": rows.tolist()}, timeout=60)
print(answer.status_code, answer.headers["content-type"])
for vote in answer.json()["votes"]:
    print("  ", vote)
votes = flowers.vote.remote(load_iris().data[1::2]).result()
wanted = [names[label] for label in load_iris().target[1::2]]
right = sum(vote["flower"] == name for vote, name in zip(votes, wanted))
print(
    "ensemble:", len(votes), "rows,", right > 68, "agreeing:", sum(vote["agree"] == 3 for vote in votes) > 60
)
for name, model in models.items():
    member = serve.get_deployment_handle(name, app_name="flowers")
    found = member.predict.remote(load_iris().data).result()
    print(
        f"{name}: as without a server:", np.array_equal(found, model.predict(load_iris().data)), found.dtype
    )

images, labels = load_digits(return_X_y=True)


async def ask(rows):
    async with httpx.AsyncClient(timeout=60) as client:
        answers = await asyncio.gather(*[client.post(f"{base}/digits", json=row.tolist()) for row in rows])
        return [int(answer.text) for answer in answers]


found = asyncio.run(ask(images[1200:1250]))
print("digits:", found[:20])
print("right:", sum(a == b for a, b in zip(found, labels[1200:1250])), "of", len(found))
print("batches:", digits.sizes.remote().result())
print("applications:", sorted(serve.status().applications))
serve.shutdown()
