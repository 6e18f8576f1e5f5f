"""How a rented machine ends: its cloud takes it, with a notice, or its own timer does, unless it is renewed.

Nobody else brings the notice: the runner often lives in a container, where a shutdown signals the first process only.

- EC2 says `spot/instance-action` two minutes ahead, and wants to be asked every 5 s. Its rebalance recommendation is a
  risk that may never come true. It is printed and not followed, because another machine costs an engine start. Source:
  https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
- Google says `instance/preempted`, 30 s ahead. Source:
  https://cloud.google.com/compute/docs/instances/create-use-spot#detect-preemption
"""

from __future__ import annotations

import asyncio
import http.client
import os
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from tasks.host.time_to_live import renew
from warehouse.ledger.claims import FLOW_DEADLINE_S, Claims

TIMEOUT_S = 1.0  # for one answer: the service is on the machine's own host
TOKEN_S = 6 * 3600  # life of EC2's session token; the longest that it gives
LONGEST = 200  # characters of the cloud's word that are kept


class Unanswered(Exception):
    """No service said whether there is a notice."""


class Notice(NamedTuple):
    """What a cloud said about its machine. `is_certain`: it takes the machine, and does not only fear that it may."""

    text: str
    is_certain: bool


class Metadata:
    """A machine's metadata service: EC2's or Google's, whichever answers."""

    def __init__(self, url: str) -> None:
        """Nothing is asked yet; `url` is http://HOST or http://HOST:PORT."""
        place = urlsplit(url)
        self._host, self._port = place.hostname or "", place.port or 80
        self._clouds: tuple[Callable[[], Notice | None], ...] = (self._ec2, self._google)
        self._token = ""

    def look(self) -> Notice | None:
        """The cloud's notice, if there is one now. Raises Unanswered: there is no such service, or it failed."""
        reasons = []
        for cloud in self._clouds:
            try:
                notice = cloud()
            except (OSError, http.client.HTTPException, Unanswered) as error:
                reasons.append(f"{error or type(error).__name__}")
            else:
                self._clouds = (cloud,)  # the other one need not be asked any more
                return notice
        raise Unanswered("; ".join(reasons))

    def _ec2(self) -> Notice | None:
        if not self._token:
            life = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
            self._token = self._asked("PUT", "/latest/api/token", life).found()
        token = {"X-aws-ec2-metadata-token": self._token}
        action = self._asked("GET", "/latest/meta-data/spot/instance-action", token)
        if action.status == HTTPStatus.UNAUTHORIZED:
            self._token = ""  # it has expired: the next look has another
        if action.status != HTTPStatus.NOT_FOUND:
            return Notice(f"EC2 says instance-action {action.found()}", is_certain=True)
        risk = self._asked("GET", "/latest/meta-data/events/recommendations/rebalance", token)
        if risk.status != HTTPStatus.NOT_FOUND:
            return Notice(f"EC2 recommends to rebalance {risk.found()}", is_certain=False)
        return None

    def _google(self) -> Notice | None:
        said = self._asked("GET", "/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
        if not said.is_google:
            raise Unanswered("not Google's")
        return Notice("Google says that it is preempted", is_certain=True) if said.found() == "TRUE" else None

    def _asked(self, method: str, path: str, headers: dict[str, str]) -> _Answer:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            text = " ".join(answer.read().decode("utf-8", errors="replace").split())
            is_google = answer.headers.get("Metadata-Flavor") == "Google"
        finally:
            connection.close()
        return _Answer(f"{method} {path}", answer.status, text[:LONGEST], is_google)


class _Answer(NamedTuple):
    question: str
    status: int
    text: str
    is_google: bool

    def found(self) -> str:
        if self.status != HTTPStatus.OK:
            raise Unanswered(f"{self.status} to {self.question}")
        return self.text


async def heed(url: str, every_s: float, on_notice: Callable[[str], None], tell: Callable[[str], None]) -> None:
    """Ask every `every_s` seconds until there is a notice; then call `on_notice` with its text.

    Reported once each: that nobody answers, which is asked again all the same, and that the cloud recommends to leave.
    """
    metadata, told = Metadata(url), set[str]()

    def once(kind: str, line: str) -> None:
        if kind not in told:
            told.add(kind)
            tell(line)

    while True:
        try:
            notice = await asyncio.to_thread(metadata.look)
        except Unanswered as error:
            once("unanswered", f"no cloud's metadata at {url}: a loss of this machine is not announced here ({error})")
        else:
            if notice is not None and notice.is_certain:
                on_notice(notice.text)
                return
            if notice is not None:
                once("risk", f"{notice.text}: this machine may be lost, it goes on meanwhile")
        await asyncio.sleep(every_s)


TIME_TO_LIVE_VARIABLE = "SPECSWEEP_TIME_TO_LIVE_S"  # how long the machine lives without its flow; unset: no timer
LOOKS = 6  # looks at the flow's heartbeat in the time that a machine lives without one: five requests each, 30 an hour
ANXIOUS_S = 60.0  # pause after a look that heard nothing new of the flow: when the store is back, so may be the flow


async def keep_alive(claims: Claims, tell: Callable[[str], None], renew: Callable[[float], bool] = renew) -> None:
    """Renew the machine's time as far as the flow's last heartbeat allows, again and again; returns if it has no timer.

    The seconds count from that heartbeat, so a machine never outlives its flow by more than its time to live. A store
    that can't be asked renews nothing.
    """
    longest_s, said = float(os.environ.get(TIME_TO_LIVE_VARIABLE) or 0.0), ""
    while longest_s:
        age_s: float | None = None
        try:
            age_s = await asyncio.to_thread(claims.age_s)
        except Exception as error:  # whatever it is, the next look may see that the flow lives
            trouble = f"whether the flow lives can't be seen: {type(error).__name__}: {error}"
            if trouble != said:
                tell(trouble)
            said = trouble
        left_s = 0.0 if age_s is None else longest_s - age_s
        if left_s > 0 and not renew(left_s):
            tell(f"this machine has no timer of its own ({TIME_TO_LIVE_VARIABLE} says that it should)")
            return
        is_heard = age_s is not None and age_s < FLOW_DEADLINE_S
        await asyncio.sleep(longest_s / LOOKS if is_heard else min(ANXIOUS_S, longest_s / LOOKS))
