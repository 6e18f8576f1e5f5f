"""`sweep cloud-lab`: a cloud on this machine to rehearse on, with the real SkyPilot, before paying for one."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from lab.cloud import Lab

lab_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Rehearse on a cloud made of this machine: real SkyPilot, spot instances that you reclaim yourself, no bill.",
    epilog='Examples: [bold]sweep cloud-lab up[/]   [bold]eval "$(sweep cloud-lab env)"[/]   '
    "[bold]sweep cloud-lab preempt NAME[/]   [bold]sweep cloud-lab down[/]",
)

RootOption = Annotated[
    Path | None,
    typer.Option("--root", help=r"the lab's folder, on a real disk, short  \[default: in your cache folder]"),
]


@lab_app.command(epilog="Examples: sweep cloud-lab up    sweep cloud-lab up --root /var/tmp/night")
def up(root: RootOption = None) -> None:
    """Start the cloud; the first time, its environment and its instances' runtime are made (about two minutes)."""
    console = Console(stderr=True)
    lab = _lab(root)
    with console.status("starting") as status:
        lab.up(status.update)
    option = f" --root {shlex.quote(str(root))}" if root else ""
    print(f'the lab is up in {lab.paths.root}; use it with: eval "$(sweep cloud-lab env{option})"')


@lab_app.command(epilog="Examples: sweep cloud-lab down    sweep cloud-lab down --root /var/tmp/night")
def down(root: RootOption = None) -> None:
    """Remove everything: SkyPilot's API server of the lab, instances, the bucket with its results, files."""
    _lab(root).down()


@lab_app.command(epilog="Examples: sweep cloud-lab status    sweep cloud-lab status --json")
def status(
    root: RootOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document instead of a table")] = False,
) -> None:
    """Show the living instances and the zones whose capacity is limited."""
    lab = _lab(root)
    running = lab.running
    living = [each for each in lab.instances() if each.alive] if running else []
    if as_json:
        instances = [each._asdict() | {"launched_at": each.launched_at.isoformat()} for each in living]
        document = {"root": str(lab.paths.root), "up": running, "instances": instances, "capacity": lab.capacities()}
        print(json.dumps(document))
        return
    if not running:
        print(f"no lab is up in {lab.paths.root}")
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for name in ("cluster", "zone", "state", "spot", "launched"):
        table.add_column(name, no_wrap=True)  # names are there to be typed again
    for each in living:
        spot = "spot" if each.spot else "on demand"
        launched = f"{each.launched_at:%H:%M:%S}"
        table.add_row(lab.name_of(each) or each.instance_id, each.zone, each.state, spot, launched)
    Console().print(table)
    for zone, count in sorted(lab.capacities().items()):
        print(f"{zone}: room for {count}")


@lab_app.command(epilog="Examples: sweep cloud-lab preempt my-cluster    sweep cloud-lab preempt i-0123456789abcdef0")
def preempt(name: Annotated[str, typer.Argument(help="a cluster, or one instance")], root: RootOption = None) -> None:
    """Reclaim a spot instance, now and without notice."""
    for instance_id in _lab(root).preempt(name):
        print(instance_id)


@lab_app.command(epilog="Examples: sweep cloud-lab notice my-cluster    sweep cloud-lab notice my-cluster --rebalance")
def notice(
    name: Annotated[str, typer.Argument(help="a cluster, or one instance")],
    in_s: Annotated[float, typer.Option("--in", min=0.0, help="seconds until it is reclaimed")] = 120.0,
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="only recommend to leave, and reclaim nothing")
    ] = False,
    root: RootOption = None,
) -> None:
    """Announce to a spot instance, in its metadata, that it will be reclaimed; two minutes later it is."""
    for instance_id in _lab(root).notice(name, None if rebalance else in_s):
        print(instance_id)


@lab_app.command(epilog="Examples: sweep cloud-lab capacity us-east-1a 0    sweep cloud-lab capacity us-east-1a -")
def capacity(
    zone: Annotated[str, typer.Argument(help="an availability zone, say us-east-1a")],
    count: Annotated[str, typer.Argument(help="instances it can hold; - lifts the limit")],
    root: RootOption = None,
) -> None:
    """Limit what a zone can hold; what runs there stays."""
    if count != "-" and not count.isdigit():
        raise typer.BadParameter(f"count is {count!r}. Remedy: a number of instances, or - for no limit")
    _lab(root).capacity(zone, None if count == "-" else int(count))


@lab_app.command(
    epilog="Examples: sweep cloud-lab weather    sweep cloud-lab weather store away --for 90s    "
    "sweep cloud-lab weather store delay 0.5    sweep cloud-lab weather cloud slow-down 0.2    "
    "sweep cloud-lab weather us-east-1 unauthorized    sweep cloud-lab weather cloud quota    "
    "sweep cloud-lab weather machines setup 60 --for 10m    sweep cloud-lab weather clear store"
)
def weather(
    where: Annotated[str | None, typer.Argument(help="store, cloud, machines, a region, or clear")] = None,
    what: Annotated[
        str | None,
        typer.Argument(
            help="at the store and the cloud: away, half-open, delay, cut, lost-answer, slow-down; store: conflict; "
            "cloud or a region: unauthorized, quota; machines: image, setup. After clear: where"
        ),
    ] = None,
    amount: Annotated[float | None, typer.Argument(help="seconds, or a share from 0 to 1")] = None,
    lasts: Annotated[str | None, typer.Option("--for", help="clears by itself after, say, 90s, 10m or 2h")] = None,
    root: RootOption = None,
) -> None:
    """Make a bad night: a store that is away, a cloud that is slow or refuses, machines that are late. Shows it."""
    from lab.weather.settings import clear_weather, set_weather

    conditions = _lab(root).weather
    if where == "clear":
        clear_weather(conditions, what)
    elif where is not None:
        if what is None:
            raise typer.BadParameter(f"weather {where}: of which kind? Remedy: sweep cloud-lab weather --help")
        set_weather(conditions, where, what, amount, None if lasts is None else _seconds(lasts))
    for line in [each.says for each in conditions.now()] or ["fine weather"]:
        print(line)


def _seconds(text: str) -> float:
    """What `90s`, `10m` or `2h` means; a bare number is seconds."""
    units = {"s": 1, "m": 60, "h": 3600}
    try:
        return float(text.rstrip("smh")) * units[text[-1:] if text[-1:] in units else "s"]
    except ValueError:
        raise typer.BadParameter(f"--for {text}: not a time. Remedy: such as 90s, 10m or 2h") from None


@lab_app.command(epilog='Examples: eval "$(sweep cloud-lab env)"')
def env(root: RootOption = None) -> None:
    """Print the variables that point SkyPilot and specsweep at the lab, for a shell to evaluate."""
    from lab.paths import MARK

    lab = _lab(root)
    # with the mark, `down` would take what this shell starts for the lab's; TMPDIR disappears with the lab
    variables = {name: value for name, value in lab.env.items() if name not in (MARK, "TMPDIR")}
    variables["SPECSWEEP_STORE"] = lab.store_url
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")


def _lab(root: Path | None) -> Lab:
    from lab.cloud import Lab

    return Lab(root)
