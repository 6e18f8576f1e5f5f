"""SkyPilot's list and the clouds' lists put together, one entry per cluster: who owns each, and what became of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from rich.text import Text

from flows.clusters.answers import LOOK_S, answered
from flows.clusters.clouds.account import Account, Instance
from flows.clusters.skypilot.api import Rented
from flows.clusters.skypilot.task_file import EXPIRY_LABEL, OWNER_LABEL
from flows.matrix import Matrix, sentences, words
from flows.reaper.books import Books
from warehouse.ledger.clock import duration
from warehouse.ledger.owner import in_words

NOT_IN_SKY = "not in SkyPilot"  # status of machines that SkyPilot forgot, or that another machine's SkyPilot rented
STRAY = "stray"  # status of machines that an earlier launch left in another region than where their cluster is up


class Found(NamedTuple):
    """A cluster, or machines that a cluster left.

    `status`: SkyPilot's word, or `NOT_IN_SKY` or `STRAY`. `in_sky`: SkyPilot can be asked to take it down. `where`: as
    in `aws/us-east-1a spot`. `since_s`: when it was launched, since 1970. `price_usd_h`: of one machine, by SkyPilot's
    catalogue. `clouds_asked`: its cloud was asked, so that an empty `instances` means that there are none.
    """

    cluster: str
    status: str
    in_sky: bool
    where: str
    since_s: float | None
    price_usd_h: float | None
    instances: tuple[Instance, ...]
    clouds_asked: bool

    @property
    def is_gone(self) -> bool:
        """Whether SkyPilot still lists it, but its cloud has no machine of it."""
        return self.in_sky and self.clouds_asked and not self.instances


def put_together(
    rented: Sequence[Rented], instances: Iterable[Instance], clouds_asked: Iterable[str], names: Iterable[str]
) -> list[Found]:
    """All that SkyPilot and the clouds know, sorted by name; it is complete for `clouds_asked`."""
    on_cloud = {each.name_on_cloud: each.name for each in rented if each.name_on_cloud}
    machines: dict[str, list[Instance]] = {}
    for instance in instances:
        machines.setdefault(_name_of(instance.cluster, on_cloud, names), []).append(instance)
    asked, found = set(clouds_asked), []
    for each in rented:
        mine = machines.pop(each.name, [])
        strays = [instance for instance in mine if _is_stray(instance, each)]
        found.append(_known(each, [instance for instance in mine if instance not in strays], asked))
        if strays:
            found.append(_unknown(each.name, STRAY, strays))
    found += [_unknown(name, NOT_IN_SKY, left) for name, left in machines.items()]
    return sorted(found, key=lambda each: (each.cluster, each.status))


def seen_again(found: Iterable[Found], clusters: Collection[str], accounts: Iterable[Account]) -> list[Found]:
    """The same, where those clusters have the labels that their machines carry now; none, if they can't be seen."""
    now: dict[tuple[str, str], Instance] = {}
    for account in accounts:
        try:
            now |= {(each.cloud, each.instance_id): each for each in answered(account.look, LOOK_S).instances}
        except Exception:
            continue  # without their labels the next look decides, in an hour
    return [
        each._replace(
            instances=tuple(now[key] for old in each.instances if (key := (old.cloud, old.instance_id)) in now)
        )
        if each.cluster in clusters
        else each
        for each in found
    ]


def _name_of(tag: str, on_cloud: Mapping[str, str], names: Iterable[str]) -> str:
    """The cluster's name behind its name on a cloud: SkyPilot appends a hash of its user."""
    if tag in on_cloud:
        return on_cloud[tag]
    return next((name for name in names if tag.startswith(f"{name}-")), tag.rpartition("-")[0])


def _is_stray(instance: Instance, rented: Rented) -> bool:
    """Whether an earlier launch left it: names are used again, and SkyPilot looks only where it launched last.

    True only while the cluster is up, and only of older machines: during a launch SkyPilot's region may be out of date.
    """
    if rented.status != "UP" or rented.launched_at_s is None or instance.launched_at_s is None:
        return False
    elsewhere = rented.region is not None and instance.region != rented.region
    return elsewhere and instance.launched_at_s < rented.launched_at_s


def _known(rented: Rented, instances: list[Instance], asked: set[str]) -> Found:
    place = f"{rented.cloud or '?'}/{rented.zone or rented.region or '-'}"
    return Found(
        cluster=rented.name,
        status=rented.status,
        in_sky=True,
        where=f"{place} {'spot' if rented.spot else 'on-demand'}",
        since_s=rented.launched_at_s,
        price_usd_h=rented.price_usd_h,
        instances=tuple(instances),
        clouds_asked=rented.cloud in asked,
    )


def _unknown(name: str, status: str, instances: list[Instance]) -> Found:
    places = dict.fromkeys(f"{each.where} {'spot' if each.spot else 'on-demand'}" for each in instances)
    return Found(
        cluster=name,
        status=status,
        in_sky=False,
        where=", ".join(places),
        since_s=min((each.launched_at_s for each in instances if each.launched_at_s is not None), default=None),
        price_usd_h=None,
        instances=tuple(instances),
        clouds_asked=True,
    )


class Fate(NamedTuple):
    """Whether a cluster goes down, whose it is, and why."""

    reap: bool
    owner: str
    why: str


def fate_of(found: Found, books: Books, now_s: float) -> Fate:
    """Decide about one cluster, by its owner as the books have it now."""
    cell = books.clusters.get(found.cluster)
    if cell is not None:
        owner = books.owner(cell)
        if owner is not None and found.status == STRAY:
            return Fate(True, "nobody", f"an earlier launch left it; {owner.doing}, elsewhere")
        if owner is not None:
            return Fate(False, owner.name, owner.doing)
        return Fate(True, "nobody", f"nobody works on its cell of run {cell.run_id}")
    if not books.knows_not(found.cluster):
        return Fate(True, "nobody", "no run of this store has its cell")
    labels = [each.labels for each in found.instances]
    whose = next((each[OWNER_LABEL] for each in labels if OWNER_LABEL in each), "") or "?"
    said = [each.get(EXPIRY_LABEL, "") for each in labels]
    expires_s = max((float(text) for text in said if text.isdecimal()), default=None)
    if expires_s is None:
        return Fate(False, whose, "of another store, and it does not say when it expires")
    left_s = expires_s - now_s
    if left_s > 0:
        return Fate(False, whose, f"of another store, expires in {duration(left_s)}")
    return Fate(True, whose, f"of another store, expired {duration(-left_s)} ago")


Done = Literal["left", "down", "would go down", "not down"]
STYLES: dict[Done, str] = {"left": "dim", "down": "green", "would go down": "yellow", "not down": "red"}


class Reaped(NamedTuple):
    """One cluster, what became of it, and what it costs an hour. `remark`: what went wrong on the way."""

    found: Found
    fate: Fate
    done: Done
    age_s: float | None
    usd_h: float | None
    remark: str = ""

    def document(self) -> dict[str, object]:
        """The cluster for `--json`."""
        return {
            "cluster": self.found.cluster,
            "status": self.found.status,
            "where": self.found.where,
            "instances": [each.instance_id for each in self.found.instances],
            "age_s": None if self.age_s is None else round(self.age_s),
            "owner": self.fate.owner,
            "usd_h": self.usd_h,
            "done": self.done,
            "why": self.fate.why,
            "remark": self.remark,
        }

    def texts(self) -> dict[str, str]:
        """The cluster's columns as people read them."""
        return {
            "cluster": self.found.cluster,
            "what": self.found.status,
            "where": self.found.where,
            "age": "?" if self.age_s is None else duration(self.age_s),
            "owner": in_words(self.fate.owner),
            "$/h": "?" if self.usd_h is None else f"{self.usd_h:.2f}",
            "done": self.done,
            "why": f"{self.fate.why} ({self.remark})" if self.remark else self.fate.why,
        }


class ReapReport(NamedTuple):
    """One look at everything that is rented; the leases of `store` decided.

    `reaped`: one per cluster, including those that were left. `asked`: SkyPilot and the clouds that answered.
    `not_asked`: who was not asked, and why; nothing can be rented there either. `problems`: who should have answered,
    and did not. `closed`: clusters of open records that were gone already.
    """

    store: str
    dry_run: bool
    reaped: tuple[Reaped, ...]
    asked: tuple[str, ...]
    not_asked: tuple[str, ...]
    problems: tuple[str, ...]
    closed: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything was looked at, and nothing is left that should be down."""
        return not self.problems and all(each.done != "not down" for each in self.reaped)

    @property
    def saved_usd_h(self) -> float:
        """Dollars an hour of what went down, or would; machines without a known price count as 0."""
        return sum((each.usd_h or 0.0 for each in self._taken()), start=0.0)

    def document(self) -> dict[str, object]:
        """The report for `--json`."""
        return {
            "store": self.store,
            "dry_run": self.dry_run,
            "ok": self.ok,
            "clusters": [each.document() for each in self.reaped],
            "saved_usd_h": round(self.saved_usd_h, 4),
            **{name: list(getattr(self, name)) for name in ("asked", "not_asked", "problems", "closed")},
        }

    def table(self) -> Matrix:
        """One row per cluster, of which there is one at least."""
        texts, styles = [each.texts() for each in self.reaped], [STYLES[each.done] for each in self.reaped]
        cluster, *others, why = (
            (name, [Text(row[name], style) for row, style in zip(texts, styles, strict=True)]) for name in texts[0]
        )
        return Matrix([words(*cluster)], [*(words(*column) for column in others), sentences(*why)])

    def lines(self) -> list[str]:
        """What to print in addition to the table; the total comes last."""
        said = [f"not asked: {each}" for each in self.not_asked]
        said += [f"closed the record of {each}: it was gone" for each in self.closed]
        said += [f"problem: {each}" for each in self.problems]
        said += [
            f"not down: {each.found.cluster} in {each.found.where}: {each.remark}"
            for each in self.reaped
            if each.done == "not down"
        ]
        return [*said, self.summary()]

    def summary(self) -> str:
        """The total in one line: how much went down, and what that saves."""
        asked = f"asked: {', '.join(self.asked) or 'nobody'}"
        taken = self._taken()
        if not taken:
            left = len(self.reaped)
            return f"nothing to reap{f', {left} left' if left else ': nothing of ours is rented'} ({asked})"
        unpriced = sum(each.usd_h is None for each in taken)
        money = f"{self.saved_usd_h:.2f} USD an hour"
        money += f", and {unpriced} of unknown price" if unpriced else ""
        count = f"{len(taken)} of {len(self.reaped)}"
        if self.dry_run:
            return f"dry run, nothing was done: {count} would go down and save {money} ({asked})"
        return f"{count} went down, which saves {money} ({asked})"

    def _taken(self) -> list[Reaped]:
        return [each for each in self.reaped if each.done in ("down", "would go down")]
