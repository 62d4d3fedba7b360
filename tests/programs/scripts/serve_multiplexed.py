"""Many models behind one deployment: each replica keeps a few, the least recently used one makes way for another."""

import socket
import time

import httpx
import ray
from ray import serve


@ray.remote
class Journal:
    def __init__(self):
        self.lines = []

    def write(self, line):
        self.lines.append(line)

    def read(self):
        lines, self.lines = self.lines, []
        return lines


class Translator:
    def __init__(self, language, journal):
        self.language = language
        self.journal = journal

    def translate(self, word):
        return f"{word}-{self.language}"

    def __del__(self):
        self.journal.write.remote(f"unload {self.language}")


@serve.deployment
class Translation:
    def __init__(self, journal):
        self.journal = journal

    @serve.multiplexed(max_num_models_per_replica=2)
    async def model(self, language):
        if language == "xx":
            raise LookupError("no model for xx")
        await self.journal.write.remote(f"load {language}")
        return Translator(language, self.journal)

    async def __call__(self, request):
        language = serve.get_multiplexed_model_id()
        if not language:
            return "no language"
        model = await self.model(language)
        return model.translate(request.query_params["word"])

    async def say(self, word):
        model = await self.model(serve.get_multiplexed_model_id())
        return model.translate(word)

    async def explicit(self, language, word):
        return (await self.model(language)).translate(word)


@serve.deployment
class Desk:
    """Asks for a model of another deployment; its own request has another one's id, or none."""

    def __init__(self, translation):
        self.translation = translation

    async def both(self, word, languages):
        found = []
        for language in languages:
            of_model = self.translation.options(multiplexed_model_id=language)
            found.append(await of_model.say.remote(word))
        return found, serve.get_multiplexed_model_id()


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PORT = probe.getsockname()[1]
ray.init(num_cpus=4, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": PORT})
journal = Journal.remote()
serve.run(Translation.bind(journal), name="direct")
client = httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=60)


def journal_has(*wanted):
    """Whether all of these are written, and then everything is forgotten. A model that is unloaded tells so later."""
    found, end = set(), time.monotonic() + 30
    while not found >= set(wanted) and time.monotonic() < end:
        found |= set(ray.get(journal.read.remote()))
        time.sleep(0.02)
    return found >= set(wanted)


def nothing_written():
    return ray.get(journal.read.remote()) == []


def ask(language, word):
    headers = {"serve_multiplexed_model_id": language} if language else {}
    answer = client.get("/", params={"word": word}, headers=headers)
    return answer.status_code, answer.text


print(ask("de", "tree"), ask("fr", "tree"), journal_has("load de", "load fr"))
print(ask("de", "leaf"), ask("fr", "leaf"), ask("de", "root"), nothing_written())
print("a third:", ask("it", "tree"), journal_has("load it", "unload fr"))
print("the one that was evicted:", ask("fr", "bark"), journal_has("load fr", "unload de"))
print("none:", ask(None, "tree"))
print("failing:", ask("xx", "tree")[0])
handle = serve.get_app_handle("direct")
print("handle:", handle.options(multiplexed_model_id="fr").say.remote("wood").result())
print("by argument:", handle.explicit.remote("it", "wood").result())
try:
    handle.options(multiplexed_model_id="xx").say.remote("wood").result()
except LookupError as error:
    print("error:", "no model for xx" in str(error))

desk = serve.run(Desk.bind(Translation.bind(journal)), name="desk", route_prefix=None)
found = desk.options(multiplexed_model_id="own").both.remote("sky", ["es", "pt", "es"]).result()
print("desk:", found, journal_has("load es", "load pt"))
for wrong in (0, -3, "many"):
    try:
        serve.multiplexed(max_num_models_per_replica=wrong)
        print("accepted:", wrong)
    except (TypeError, ValueError) as error:
        print("refused:", wrong, type(error).__name__)
serve.shutdown()
