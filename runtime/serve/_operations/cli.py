"""The command line `serve`: `python -m runtime.serve`, and `clusterctl serve`."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from runtime._system import settings
from runtime.serve._operations.client import ServeClient, ServeError
from runtime.serve.exceptions import RayServeException

app = typer.Typer(
    name="serve",
    help=(
        "Deploys and shows applications that are served on a cluster.\n\n"
        "\b\n"
        "  serve run main:app                    runs an application until Ctrl-C\n"
        "  serve build main:app -o serve.yaml    writes a configuration\n"
        "  serve deploy serve.yaml               deploys it\n"
        "  serve status                          shows what became of it"
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

Head = Annotated[
    str | None,
    typer.Option(
        "--address",
        "-a",
        help="http://host:port of the head's API, or the address of the cluster. Default: the cluster in use.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option("--address", "-a", help="Of the cluster. Default: the one in use."),
]
EnvironmentFile = Annotated[
    str | None, typer.Option("--runtime-env", help="YAML file with a runtime_env for the application.")
]
EnvironmentJson = Annotated[
    str | None, typer.Option("--runtime-env-json", help="A runtime_env for the application, as JSON.")
]
WorkingDir = Annotated[
    str | None,
    typer.Option("--working-dir", help="working_dir of the runtime_env: a folder here, or a URI."),
]
AppDir = Annotated[
    str, typer.Option("--app-dir", "-d", help="Folder that import paths are looked up in first.")
]
Path_ = Annotated[
    str,
    typer.Argument(metavar="CONFIG_OR_IMPORT_PATH", help="A YAML file, or module:name of an application."),
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Arguments of the function at the import path."),
]
Services = Annotated[
    list[str] | None,
    typer.Option(
        "--grpc-servicer-functions", help="Import path of a generated add_..._to_server; repeatable."
    ),
]
Reflection = Annotated[
    bool,
    typer.Option(
        "--grpc-enable-reflection/--grpc-disable-reflection", help="Whether tools may list services."
    ),
]
Name = Annotated[str | None, typer.Option("--name", "-n", help="Of the application.")]


def main(arguments: Sequence[str] | None = None, prog_name: str = "serve") -> None:
    """Runs the command line and exits."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    try:
        app(None if arguments is None else list(arguments), prog_name=prog_name)
    except (ConnectionError, RayServeException, ServeError) as error:
        fail(str(error))


def fail(message: str) -> None:
    """Ends the command with an error."""
    typer.echo(f"error: {message}", err=True)
    raise SystemExit(1)


def say(message: str) -> None:
    """Tells the user, not who reads the output."""
    typer.echo(message, err=True)


@app.command()
def start(
    address: Cluster = None,
    http_host: Annotated[str, typer.Option("--http-host", help="Address to listen at.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option("--http-port", help="Port to listen at.")] = 8000,
    proxy_location: Annotated[
        str, typer.Option("--proxy-location", help="Nodes with an ingress: Disabled, HeadOnly or EveryNode.")
    ] = "EveryNode",
    grpc_port: Annotated[int, typer.Option("--grpc-port", help="Port of gRPC.")] = 9000,
    grpc_servicer_functions: Services = None,
    grpc_enable_reflection: Reflection = True,
) -> None:
    """Starts serving on a cluster, without applications."""
    from runtime import serve

    _connect(address or "auto", None)
    serve.start(
        proxy_location=proxy_location,
        http_options={"host": http_host, "port": http_port},
        grpc_options={
            "port": grpc_port,
            "grpc_servicer_functions": grpc_servicer_functions or [],
            "enable_reflection": grpc_enable_reflection,
        },
    )
    say(f"Serving at http://{http_host}:{http_port}.")


@app.command()
def deploy(
    config_or_import_path: Path_,
    arguments: Arguments = None,
    runtime_env: EnvironmentFile = None,
    runtime_env_json: EnvironmentJson = None,
    working_dir: WorkingDir = None,
    name: Name = None,
    address: Head = None,
) -> None:
    """Deploys the applications of a YAML file, or the one at an import path, and returns at once.

    Applications that an earlier `deploy` brought and that are not in the file are deleted.
    """
    env = _environment(runtime_env, runtime_env_json, working_dir)
    values = _arguments(arguments)
    if Path(config_or_import_path).is_file():
        if values:
            fail("A configuration file takes no arguments: write them as `args` of its applications.")
        if env or name:
            fail("A configuration file takes no runtime_env and no --name: write them into its applications.")
        config = _read(config_or_import_path)
    else:
        one = {"import_path": config_or_import_path, "runtime_env": env, "args": values}
        config = {"applications": [one | ({"name": name} if name else {})]}
    client = ServeClient(address or settings.DASHBOARD_ADDRESS.get())
    for one in _environments(config):
        if _is_local(one["runtime_env"]):
            one["runtime_env"] = client.upload(one["runtime_env"])
    _checked(config)
    client.deploy(config)
    say("The configuration is accepted. `serve status` shows what becomes of the applications.")


@app.command()
def run(
    config_or_import_path: Path_,
    arguments: Arguments = None,
    runtime_env: EnvironmentFile = None,
    runtime_env_json: EnvironmentJson = None,
    working_dir: WorkingDir = None,
    app_dir: AppDir = ".",
    address: Cluster = None,
    blocking: Annotated[
        bool, typer.Option("--blocking/--non-blocking", help="Run until Ctrl-C, then end what is served.")
    ] = True,
    reload: Annotated[
        bool, typer.Option("--reload", "-r", help="Deploy again when a Python file in the folder changes.")
    ] = False,
    route_prefix: Annotated[
        str, typer.Option("--route-prefix", help="Prefix of the paths of HTTP requests.")
    ] = "/",
    name: Annotated[str, typer.Option("--name", help="Of the application.")] = "default",
) -> None:
    """Runs the application at an import path, or those of a YAML file, and shows their logs.

    Without a cluster in use it starts one on this machine.
    """
    from runtime.serve._operations import running

    folder = os.path.abspath(app_dir)
    sys.path.insert(0, folder)
    values = _arguments(arguments)
    _connect(address, _environment(runtime_env, runtime_env_json, working_dir))
    if Path(config_or_import_path).is_file():
        if values or reload:
            fail("A configuration file takes neither arguments nor --reload.")
        config = _read(config_or_import_path)
        running.run_config(_checked(config), blocking)
        return
    if reload and not blocking:
        fail("--reload and --non-blocking exclude each other.")
    program = running.Program(config_or_import_path, values, name, route_prefix)
    watched = os.path.abspath(working_dir) if working_dir else folder
    if reload:
        program.follow(watched)
    else:
        program.run(blocking)


@app.command()
def config(address: Head = None, name: Name = None) -> None:
    """Prints the configurations that applications were deployed with."""
    found = ServeClient(address or settings.DASHBOARD_ADDRESS.get()).details()["applications"]
    if name is not None:
        chosen = found.get(name, {}).get("deployed_app_config")
        typer.echo(
            f'No config has been deployed for application "{name}".' if not chosen else _yaml(chosen),
            nl=not chosen,
        )
        return
    configs = [each["deployed_app_config"] for each in found.values() if each["deployed_app_config"]]
    typer.echo(
        "\n---\n\n".join(map(_yaml, configs)) if configs else "No configuration was found.\n", nl=False
    )


@app.command()
def status(address: Head = None, name: Name = None) -> None:
    """Prints the status of all applications, their deployments and the ingresses.

    An application is DEPLOYING, RUNNING, UNHEALTHY, DEPLOY_FAILED or DELETING. A deployment is UPDATING, UPSCALING,
    DOWNSCALING, HEALTHY, UNHEALTHY or DEPLOY_FAILED. Messages have the traceback of what failed.
    """
    from runtime.serve.schema import ServeStatus

    found = ServeStatus.of(ServeClient(address or settings.DASHBOARD_ADDRESS.get()).details())
    if name is None:
        typer.echo(_yaml(found), nl=False)
    elif name in found.applications:
        typer.echo(_yaml(found.applications[name]), nl=False)
    else:
        fail(f'Application "{name}" does not exist.')


@app.command()
def shutdown(
    address: Head = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Ends all applications, the ingresses and the controller."""
    client = ServeClient(address or settings.DASHBOARD_ADDRESS.get())
    details = client.details()
    if not details["controller_info"]:
        say("Nothing is served.")
        return
    if not yes:
        typer.confirm(
            f"End everything that is served, {len(details['applications'])} applications?", abort=True
        )
    client.shutdown()
    say("Everything that was served has ended.")


@app.command()
def build(
    import_paths: Annotated[
        list[str], typer.Argument(metavar="IMPORT_PATH...", help="module:name of applications.")
    ],
    app_dir: AppDir = ".",
    output_path: Annotated[
        str | None, typer.Option("--output-path", "-o", help="File to write. Default: standard output.")
    ] = None,
    grpc_servicer_functions: Services = None,
    grpc_enable_reflection: Reflection = True,
) -> None:
    """Writes a configuration of applications, with the options of their deployments, for `deploy` and `run`."""
    from runtime.serve._operations.configuration import built_config

    sys.path.insert(0, os.path.abspath(app_dir))
    try:
        made = built_config(import_paths, grpc_servicer_functions or [], grpc_enable_reflection)
    except (ImportError, TypeError, ValueError) as error:
        fail(str(error))
    text = "# Written by `serve build`: names and routes may be changed.\n\n" + _yaml(made)
    if output_path:
        Path(output_path).write_text(text, encoding="utf-8")
    else:
        typer.echo(text, nl=False)


# ---------------------------------------------------------------- values


def _connect(address: str | None, env: Mapping[str, Any] | None) -> None:
    import runtime
    from runtime.serve._core.published import NAMESPACE

    if not runtime.is_initialized():
        runtime.init(address=address, namespace=NAMESPACE, runtime_env=dict(env) if env else None)


def _arguments(given: Sequence[str] | None) -> dict[str, str]:
    values = {}
    for each in given or ():
        key, _, value = each.partition("=")
        if not key or not value:
            fail(f"Invalid application argument '{each}': write it as KEY=VALUE.")
        values[key] = value
    return values


def _environment(file: str | None, text: str | None, working_dir: str | None) -> dict[str, Any]:
    if file is not None and text is not None:
        fail("--runtime-env and --runtime-env-json exclude each other.")
    env: dict[str, Any] = {}
    if file is not None:
        env = _read(file)
    elif text is not None:
        try:
            env = json.loads(text)
        except ValueError as error:
            fail(f"--runtime-env-json is no JSON: {error}")
    if not isinstance(env, dict):
        fail(f"A runtime_env must be a dict, not {env!r}.")
    return env | ({"working_dir": working_dir} if working_dir else {})


def _environments(config: Any) -> list[Any]:
    """The parts of a configuration that have a `runtime_env`. What is wrong in it is found later."""
    found: list[Any] = []
    for each in (config.get("applications") if isinstance(config, dict) else None) or ():
        if isinstance(each, dict):
            found.append(each)
            deployments = each.get("deployments") or ()
            found += [one.get("ray_actor_options") for one in deployments if isinstance(one, dict)]
    return [each for each in found if isinstance(each, dict) and isinstance(each.get("runtime_env"), dict)]


def _is_local(env: Mapping[str, Any]) -> bool:
    places = [env.get("working_dir"), *(env.get("py_modules") or ())]
    return any(place is not None and "://" not in str(place) for place in places)


def _read(file: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        fail(f"{file} cannot be read: {error}")


def _checked(config: Any) -> Any:
    """The schema of a configuration; a wrong one ends the command."""
    from runtime.serve.schema import ServeDeploySchema

    try:
        return ServeDeploySchema.model_validate(config)
    except (ValueError, TypeError) as error:
        fail(f"The configuration is wrong: {error}")


def _yaml(value: Any) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Texts of several lines, e.g. tracebacks, stay legible."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        lines = "\n".join(line.rstrip() for line in value.splitlines()) if style else value
        return dumper.represent_scalar("tag:yaml.org,2002:str", lines, style=style)

    Dumper.add_representer(str, text)
    return str(yaml.dump(_plain(value), Dumper=Dumper, sort_keys=False, width=100, allow_unicode=True))


def _plain(value: Any) -> Any:
    """Values that YAML knows."""
    import dataclasses
    from enum import Enum

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
