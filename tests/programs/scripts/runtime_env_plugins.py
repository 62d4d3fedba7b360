"""A team's own fields in runtime_env: one that fetches a model once per node, one that sets up tracing."""

import json
import os
import pathlib
import tempfile
import textwrap

folder = pathlib.Path(tempfile.mkdtemp(prefix="plugins-"))
(folder / "team_plugins.py").write_text(
    textwrap.dedent(
        """
        import pathlib
        from typing import List, Optional

        from ray._private.runtime_env.context import RuntimeEnvContext
        from ray._private.runtime_env.plugin import RuntimeEnvPlugin

        FOLDER = pathlib.Path(__file__).parent


        class ModelPlugin(RuntimeEnvPlugin):
            name = "model"
            priority = 60

            @staticmethod
            def validate(runtime_env_dict) -> None:
                if not isinstance(runtime_env_dict["model"], str):
                    raise TypeError("model must be a name")

            def get_uris(self, runtime_env) -> List[str]:
                return ["model://" + runtime_env["model"]]

            async def create(self, uri: Optional[str], runtime_env, context: RuntimeEnvContext, logger) -> float:
                with open(FOLDER / "fetched", "a") as file:
                    file.write(uri + "\\n")
                weights = FOLDER / "weights"
                weights.write_text("weights of " + uri)
                return float(weights.stat().st_size)

            def modify_context(self, uris: List[str], runtime_env, context: RuntimeEnvContext, logger) -> None:
                context.env_vars["MODEL_PATH"] = str(FOLDER / "weights")
                context.env_vars["ORDER"] = context.env_vars.get("ORDER", "") + "m"


        class TracingPlugin(RuntimeEnvPlugin):
            name = "tracing"

            def modify_context(self, uris, runtime_env, context, logger) -> None:
                if runtime_env["tracing"] == "broken":
                    raise RuntimeError("no tracing today")
                context.env_vars["ORDER"] = context.env_vars.get("ORDER", "") + "t"
                context.command_prefix += ["export", "TRACING=" + runtime_env["tracing"], "&&"]
        """
    )
)
os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ["RAY_RUNTIME_ENV_PLUGINS"] = json.dumps(
    [{"class": "team_plugins.ModelPlugin"}, {"class": "team_plugins.TracingPlugin", "priority": 20}]
)

import ray
from ray.runtime_env import RuntimeEnv


@ray.remote
def load():
    return open(os.environ["MODEL_PATH"]).read()


@ray.remote
def variables(*names):
    return [os.environ.get(name) for name in names]


@ray.remote
class Server:
    def where(self):
        return os.environ["TRACING"], os.path.basename(os.environ["MODEL_PATH"])


def outcome(ref):
    try:
        return ray.get(ref)
    except ray.exceptions.RuntimeEnvSetupError:
        return "the environment cannot be set up"


ray.init(num_cpus=2)
env = RuntimeEnv(model="small")
print(env.plugins(), env["model"])
print(ray.get(load.options(runtime_env=env).remote()))
both = {"model": "small", "tracing": "fine", "env_vars": {"ORDER": "-"}}
print(ray.get(variables.options(runtime_env=both).remote("ORDER", "TRACING")))
print(ray.get(Server.options(runtime_env=both).remote().where.remote()))
print("fetched:", (folder / "fetched").read_text().split())
print(outcome(load.options(runtime_env={"model": 3}).remote()))
print(outcome(load.options(runtime_env={"tracing": "broken"}).remote()))
print(ray.get(variables.remote("ORDER", "TRACING", "MODEL_PATH")))
ray.shutdown()
