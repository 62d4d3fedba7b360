"""The page about performance, made of the lines of the benchmarks (see figures.py)."""

from __future__ import annotations

from typing import Any

Line = dict[str, Any]
Row = dict[str, Any]

HEAD = """\
# Performance

Made by `scripts/bench/report` of what the benchmarks printed; no figure here was written by hand.

    scripts/bench/all > lines             # every benchmark, one line of JSON each; the machine should do nothing else
    scripts/bench/all --against PYTHON    # the same, and how the engine compares to Ray, which is installed for PYTHON
    scripts/bench/report lines            # this page
    scripts/bench/report --update lines   # the sections of these lines alone

Each benchmark is a program in `scripts/bench` that measures through the public API; `--help` says what it takes.
"""
SECTIONS = {
    "engine": (
        "The engine",
        "One figure per operation, on a local cluster with two CPUs: the median of three rounds of a second.",
    ),
    "scale": ("Scale on one machine", "How much a local cluster with two CPUs carries."),
    "contention": (
        "Under contention",
        "Several drivers on one node, long tasks among short ones, and a driver that computes in Python while replies "
        "come: as only one thread of a Python process runs at a time, these wait for the interpreter.",
    ),
    "channels": (
        "Channels",
        "What compiled graphs and collectives send their values through: two processes, in the node's memory and over "
        "TCP on the loopback.",
    ),
    "graphs": (
        "Graphs",
        "Graphs of tasks and actor calls, plain and compiled, on a local cluster with two CPUs: rates are the median "
        "of three rounds of a second. Ray's compiled graphs spin while they wait; here they sleep and leave the cores "
        "to others.",
    ),
    "collectives": (
        "Collectives",
        "Two members on one node that pass float32 arrays, in place; Ray with its backend gloo.",
    ),
    "data": (
        "Data sets",
        "The same input through this engine, Ray Data and, where it stands beside them, the fastest of DuckDB, Polars, "
        "pyarrow, torch's DataLoader and a pool of processes, two threads or processes each. Every result is checked. "
        "Bold: below the floor, over the limit, or slower than a fifth of the other tool (80 % for functions of rows). "
        "Medians of three; what takes longer than 5 s runs once.",
    ),
    "train": (
        "Training",
        "PyTorch on one node through this engine, Ray Train and, where it stands beside them, torchrun and plain "
        "torch. Every result is checked. Ray's workers run at the priority of others (`RAY_worker_niceness=0`). Bold: "
        "below the floor, over the limit, or slower than the other tool where no slower is wanted.",
    ),
    "tune": (
        "Tuning",
        "Experiments on one node with two CPUs through this engine, Ray Tune and, where it stands beside them, Optuna "
        "alone, a pool of processes, pipes, or a fork for each trial. Every result is checked. Ray's workers run at "
        "the priority of others (`RAY_worker_niceness=0`). TPE, no-op trials and ASHA are stopped after 45 s: rates "
        "are of what has finished. Bold: below the floor, or over the limit.",
    ),
    "serve": (
        "Serving",
        "Applications on one node with two CPUs through this engine, Ray Serve and, where it stands beside them, "
        "uvicorn with Starlette or FastAPI. Load comes from a process of its own on the same machine; every answer is "
        "checked. Ray's workers run at the priority of others (`RAY_worker_niceness=0`). Bold: below the floor, or "
        "over the limit.",
    ),
    "rllib": (
        "Reinforcement learning",
        "The same algorithms and hyperparameters on one node with two CPUs through this engine, Ray's RLlib and, where "
        "it stands beside them, Stable-Baselines3 or PPO as one plain loop. Torch has one thread in each process; "
        "Ray's workers run at the priority of others (`RAY_worker_niceness=0`). RLlib's DQN and SAC are stopped after "
        "100 s: rates are of what was done. Bold: below the floor, or over the limit.",
    ),
    "warm_workers": (
        "Warm workers",
        "Actors that need a large module, which each imports itself, or which their node has preloaded "
        "(`runtime_env={'preload': [...]}`); medians of seven, by turns.",
    ),
    "rest": (
        "Cost at rest",
        "What a cluster with nothing to do uses. A wake is a context switch of any thread of a process.",
    ),
    "control_plane": (
        "The control plane",
        "Simulated node agents against one real control store with its file: what it uses, how long calls take.",
    ),
    "hosts": (
        "Across hosts",
        "Hosts in network namespaces of one machine, over TCP; raw: a plain socket between them.",
    ),
    "launcher": (
        "The launcher",
        "Machines of one's own, over SSH: hosts in network namespaces of one machine, which share its cores "
        "or have a part of one each, with a "
        "Python, an sshd and nothing of ours. From nothing to a job's result and back; medians of five, all sizes by "
        "turns.",
    ),
    "launcher_against": (
        "The launcher and Ray's",
        "Three hosts of the same kind that have Ray already, side by side in one session: our launcher with the engine "
        "and with Ray (`runtime: {kind: ray}`), and `ray up` with a file of one's own machines; medians of three. "
        "Ray's nodes find the token that they must have in common in their shells' start files, as Ray's launcher "
        "brings none. Who has not joined a minute after `ray up` began counts as not joined.",
    ),
    "clouds": (
        "Clouds",
        "Pretended clouds on this machine, which answer at once and whose instances are hosts in network namespaces: "
        "what our side takes from an empty account to a joined worker, and back. To do nothing, it need not ask.",
    ),
    "demand": (
        "Demand",
        "What waits, on its way through the control store to the autoscaler; CPU time.",
    ),
    "autoscaler": (
        "The autoscaler",
        "One decision for a large cluster: the plan alone, and a tick, which is all that is done between looking at "
        "the world and telling the platform. A [drawing](autoscaler-growth.svg) shows how they grow.",
    ),
    "reaction": (
        "How soon the autoscaler acts",
        "From an agent's word that a task waits to the create call.",
    ),
    "rehearsal": (
        "Rehearsals",
        "How long `clusterctl simulate` takes; [simulate.md](simulate.md) says what it does.",
    ),
    "quality": (
        "What the autoscaler decides",
        "Cost and waiting time on simulated demand traces; [autoscaler.md](autoscaler.md) has them one by one.",
    ),
}


def page(lines: dict[str, Line]) -> str:
    """The page of these lines, by benchmark."""
    parts = [HEAD]
    known = [name for name in SECTIONS if name in lines]
    for name in [*known, *(name for name in lines if name not in SECTIONS)]:
        parts.append(_section(name, lines[name]))
    return "\n".join(parts)


def updated(text: str, lines: dict[str, Line]) -> str:
    """An existing page, with the sections of these lines in the place of what it had of the same benchmarks."""
    titles = {SECTIONS.get(name, (name, ""))[0]: name for name in lines}
    _, *sections = text.split("\n## ")
    kept = {section.partition("\n")[0]: f"## {section.rstrip()}\n" for section in sections}
    made = {title: _section(name, lines[name]) for title, name in titles.items()}
    every = {**kept, **made}
    order = [title for title, _ in SECTIONS.values() if title in every]
    return "\n".join([HEAD, *(every[title] for title in [*order, *(t for t in every if t not in order)])])


def _section(name: str, line: Line) -> str:
    title, text = SECTIONS.get(name, (name, ""))
    machine = line["machine"]
    where = (
        f"Measured {line['when'][:10]} on {machine['cores']} cores ({machine['cpu']}), {machine['memory_gib']} GiB, "
        f"{machine['kernel']}, Python {machine['python']}; load average at the start: {line['load']:g}."
    )
    parts = [f"## {title}\n", f"{text} {where}".strip() + "\n"]
    if line["error"]:
        parts.append(f"Not everything could be measured: {line['error']}\n")
    rows: list[Row] = line["figures"]
    compared = [row for row in rows if "peer" in row or "anchor" in row]
    if compared:
        header = ["operation", "here", "Ray", "ratio", "floor", "goal", "another tool", "at most", ""]
        parts.append(_table(header, [_compared(row) for row in compared]))
    others = [row for row in rows if row not in compared]
    if others:
        parts.append(_table(["what", "figure", "goal", ""], [_plain(row) for row in others]))
    for row in rows:
        if "processes" in row:
            parts.append(f"{row['name']}, one by one:\n")
            cells = [
                [each["process"], _number(each["cpu_percent"]), _number(each["wakes_per_s"])]
                for each in row["processes"]
            ]
            parts.append(_table(["process", "% of a core", "wakes per second"], cells))
    return "\n".join(parts)


def _compared(row: Row) -> list[str]:
    ratio, floor, goal, at_most = (row.get(key) for key in ("ratio", "floor", "goal", "at_most"))
    unit = row["unit"]
    return [
        row["name"],
        _marked(f"{_number(row['value'])} {unit}", at_most is not None and row["value"] > at_most),
        f"{_number(row['peer'])} {unit}" if "peer" in row else "",
        "" if ratio is None else _marked(_number(ratio), floor is not None and ratio < floor),
        "" if floor is None else _number(floor),
        "" if goal is None else _number(goal),
        _anchor(row["anchor"], unit) if "anchor" in row else "",
        "" if at_most is None else _number(at_most),
        row["meaning"],
    ]


def _anchor(anchor: Row, unit: str) -> str:
    ratio, floor = anchor["ratio"], anchor["floor"]
    text = f"{_number(anchor['value'])} {unit} ({anchor['tool']})"
    return _marked(text, None not in (ratio, floor) and ratio < floor)


def _marked(text: str, missed: bool) -> str:
    return f"**{text}**" if missed else text


def _plain(row: Row) -> list[str]:
    value = row["value"]
    goal, missed = "", False
    if "at_most" in row:
        goal, missed = f"at most {_number(row['at_most'])}", value > row["at_most"]
    elif "at_least" in row:
        goal, missed = f"at least {_number(row['at_least'])}", value < row["at_least"]
    text = f"{_number(value)} {row['unit']}".strip()
    return [row["name"], _marked(text, missed), goal, row["meaning"]]


def _number(value: float) -> str:
    """Without an exponent, and with separators where they help."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _table(header: list[str], rows: list[list[str]]) -> str:
    width = len(header)
    used = [index for index in range(width) if header[index] or any(row[index] for row in rows)]
    used = [index for index in used if index < 2 or any(row[index] for row in rows)]
    lines = [header, ["---"] * width, *rows]
    cells = [[row[index].replace("|", "\\|") for index in used] for row in lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)
