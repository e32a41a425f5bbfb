"""The one drawing of a plan, as text; and a plan's commands and variables, for reading."""

from __future__ import annotations

import re
import shlex
import textwrap
from typing import TYPE_CHECKING

from tfjob_magic.core.plan import MASK
from tfjob_magic.core.rehearsal import gigabytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfjob_magic.core.plan import Plan, PlannedNode, Task
    from tfjob_magic.core.shares import Share

GAP = 2  # columns between two nodes
NARROWEST = 38  # columns of a node that still hold `worker-0  :10000` in a half
MOST_ROWS = 2  # of nodes; with more, those between the first row and the last are left out
MOST_COMMANDS = 16
LONGEST = 500  # characters of a variable or argument; of a longer one, lists are shortened
_ITEM = r'[^\s,"\[\]]+'
_LISTS = re.compile(rf'{_ITEM}(?:,{_ITEM}){{3,}}|"{_ITEM}"(?:, ?"{_ITEM}"){{3,}}')


def draw(plan: Plan, width: int = 80) -> str:
    """Draw a plan: its nodes, the network under them, its notes, in lines of `width` columns.

    A node is a box of a PS half and a worker half; chief and evaluator sit with the PS. In a
    rehearsal each half shows what is asked → what is granted.
    """
    per_row = max(1, (width + GAP) // (NARROWEST + GAP))
    box = (width - GAP * (per_row - 1)) // per_row
    rows = [plan.nodes[start : start + per_row] for start in range(0, len(plan.nodes), per_row)]
    lines = [*(part for line in _title(plan) for part in textwrap.wrap(line, width)), ""]
    if len(rows) > MOST_ROWS:
        lines += [*_row(plan, rows[0], box), "", _elision(rows[1:-1], width), ""]
    else:
        for row in rows[:-1]:
            lines += [*_row(plan, row, box), ""]
    lines += _row(plan, rows[-1], box)
    lines += _network(plan, len(rows[-1]), box, width)
    for note in plan.notes:
        lines += bullet(note, width)
    return "\n".join(line.rstrip() for line in lines)


def bullet(note: str, width: int) -> list[str]:
    """Set a note as a bulleted paragraph of lines of `width` columns."""
    return textwrap.wrap(note, width, initial_indent="• ", subsequent_indent="  ")


def commands(plan: Plan) -> str:
    """List what each task would run, quoted as a shell reads it: directory, variables, command.

    What is the same in every task comes first. The values of the user's own variables are masked.
    Of more than 16 tasks the rest is counted; so are the hosts of a long list.
    """
    first, *others = plan.tasks
    common = {
        name: value
        for name, value in first.env.items()
        if name not in plan.job.env and all(task.env.get(name) == value for task in others)
    }
    own = dict.fromkeys(plan.job.env, MASK)
    lines = ["# every task", f"cd {shlex.quote(plan.job.cwd)}", *_exports({**common, **own})]
    for task in plan.tasks[:MOST_COMMANDS]:
        differing = {
            name: value
            for name, value in task.env.items()
            if name not in common and (name not in own or not _users(name, task))
        }
        lines += ["", f"# {task.name}, on node {task.node}", *_exports(differing)]
        lines.append(shlex.join(map(_shortened, task.argv)))
    rest = len(plan.tasks) - MOST_COMMANDS
    if rest > 0:
        lines += ["", f"# and {rest} tasks more: tfjob plan --json has them all"]
    if any(" more …," in line for line in lines):
        lines += ["", "# lists are shortened (…): tfjob plan --json has them whole"]
    return "\n".join(lines)


def _users(name: str, task: Task) -> bool:
    """Whether the user's own value of a launcher's variable is the one that counts."""
    return name != "CUDA_VISIBLE_DEVICES" or task.role == "worker"


def _exports(variables: dict[str, str]) -> Iterator[str]:
    for name, value in variables.items():
        yield f"export {name}={shlex.quote(_shortened(value))}"


def _shortened(text: str) -> str:
    """Write each list of a long text as its ends: `127.0.0.2:5001,… 998 more …,127.0.3.9:7`."""
    return _LISTS.sub(_ends, text) if len(text) > LONGEST else text


def _ends(found: re.Match[str]) -> str:
    items = [item.strip() for item in found[0].split(",")]
    return f"{items[0]},… {len(items) - 2} more …,{items[-1]}"


def _title(plan: Plan) -> list[str]:
    flavor = plan.job.flavor
    whole = [_count(flavor.cpus, "core"), gigabytes(flavor.memory_mib)]
    if flavor.accelerator:
        whole.insert(0, _devices(flavor.accelerators, flavor.accelerator))
    known = "" if flavor.accelerator and "|" in flavor.name else f"{flavor.name}: "
    return [
        f"{plan.run} · rehearsal" if plan.rehearsal else plan.run,
        f"{_count(len(plan.nodes), 'node')} of {known}{', '.join(whole)} · {plan.job.pool} pool",
    ]


def _row(plan: Plan, nodes: Sequence[PlannedNode], box: int) -> list[str]:
    """Draw nodes side by side, all as tall as the tallest."""
    halves = [_halves(plan, node) for node in nodes]
    tall = max(len(half) for pair in halves for half in pair)
    drawn = [
        _box(_heading(plan, node), pair, box, tall)
        for node, pair in zip(nodes, halves, strict=True)
    ]
    return [(" " * GAP).join(parts) for parts in zip(*drawn, strict=True)]


def _heading(plan: Plan, node: PlannedNode) -> str:
    where = "" if plan.network.mode == "none" else f" · {node.address}"
    return f" node {node.index}{where} "


def _halves(plan: Plan, node: PlannedNode) -> list[list[str]]:
    """The lines of a node's halves; an empty half takes no room."""
    here = [task for task in plan.tasks if task.node == node.index]
    serving = [task for task in here if task.role != "worker"]
    working = [task for task in here if task.role == "worker"]
    return [_tasks(tasks) for tasks in (serving, working) if tasks]


def _box(heading: str, halves: list[list[str]], box: int, tall: int) -> list[str]:
    inner = box - 2 - (len(halves) - 1)
    widths = [inner // len(halves)] * len(halves)
    widths[-1] += inner - sum(widths)
    edges = ["─" * width for width in widths]
    top = "┬".join(edges)
    top = "─" + heading + top[len(heading) + 1 :]
    middle = [
        "│"
        + "│".join(
            f" {_fit(half[line] if line < len(half) else '', width - 1)}"
            for half, width in zip(halves, widths, strict=True)
        )
        + "│"
        for line in range(tall)
    ]
    return [f"╭{top}╮", *middle, f"╰{'┴'.join(edges)}╯"]


def _tasks(tasks: Sequence[Task]) -> list[str]:
    """Write the tasks of one half; those that are alike are written once."""
    alike: dict[tuple[object, ...], list[Task]] = {}
    for task in tasks:
        alike.setdefault((task.role, *_amounts(task.asked), *_amounts(task.granted)), []).append(
            task
        )
    lines: list[str] = []
    for group in alike.values():
        lines += ["", *_group(group)] if lines else _group(group)
    return lines


def _group(group: Sequence[Task]) -> list[str]:
    task = group[0]
    if len(group) == 1:
        port = f" :{task.address.rpartition(':')[2]}" if task.address else ""
        lines = [task.name + port if len(task.name + port) <= NARROWEST // 2 - 3 else task.name]
    else:
        lines = [f"{len(group)} {task.role if task.role == 'ps' else task.role + 's'}, each"]
    asked, granted = task.asked, task.granted
    lines.append(_change(str(asked.cpus), str(granted.cpus)) + _noun(granted.cpus, " core"))
    lines.append(_change(gigabytes(asked.memory_mib), gigabytes(granted.memory_mib)))
    if asked.accelerator:
        wanted = _devices(asked.accelerators, asked.accelerator)
        got = _devices(granted.accelerators, granted.accelerator) if granted.accelerator else "none"
        lines.append(wanted if _same_devices(asked, granted) else f"{wanted} → {got}")
    return lines


def _same_devices(asked: Share, granted: Share) -> bool:
    return asked.accelerators == granted.accelerators


def _amounts(share: Share) -> tuple[object, ...]:
    return (share.cpus, share.memory_mib, share.accelerators, share.accelerator)


def _change(asked: str, granted: str) -> str:
    if asked == granted:
        return asked
    unit = asked[-3:]
    if unit == granted[-3:] and unit.strip().isalpha():
        asked = asked.removesuffix(unit)
    return f"{asked} → {granted}"


def _network(plan: Plan, boxes: int, box: int, width: int) -> list[str]:
    """The network under the nodes of the last row: its mode, the card, and why."""
    network = plan.network
    if network.mode == "none":
        return ["", *textwrap.wrap(f"no network: {network.reason}", width), ""]
    stubs = [number * (box + GAP) + box // 2 for number in range(boxes)]
    stub = "".join("│" if column in stubs else " " for column in range(width))
    bus = "".join("┷" if column in stubs else "━" for column in range(width))
    card = ""
    if network.nic is not None:
        speed = f", {network.nic.gbps} Gbit/s" if network.nic.gbps else ""
        kind = {"roce": "RoCE", "infiniband": "InfiniBand"}[network.nic.type]
        card = f" · {kind} {network.nic.device}{speed}"
    text = f"{network.mode} network{card} · {network.reason}"
    return [stub, bus, *textwrap.wrap(text, width), ""]


def _elision(rows: Sequence[Sequence[PlannedNode]], width: int) -> str:
    first, last = rows[0][0].index, rows[-1][-1].index
    return f"⋮ nodes {first} to {last}, {last - first + 1} more ⋮".center(width)


def _devices(count: int, kind: str) -> str:
    return f"{count} {kind.removeprefix('NVIDIA ').removeprefix('Tesla ')}"


def _count(number: int, noun: str) -> str:
    return f"{number}{_noun(number, ' ' + noun)}"


def _noun(number: int, noun: str) -> str:
    return noun if number == 1 else noun + "s"


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else text[: width - 1] + "…"
