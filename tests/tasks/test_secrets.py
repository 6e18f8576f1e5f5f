"""A runner is handed its secrets, and nothing that it starts shows them: seen from outside, all the time."""

import os
import re
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from urllib.parse import quote

import pytest

from configs import secrets
from configs.checkout import ROOT
from configs.errors import SpecsweepError
from flows.clusters.local import LocalCluster
from flows.clusters.protocol import CellJob
from tests.command_lines import SecretWatch
from tests.fake_run import FakeRun
from tests.tasks.test_cell import wait_until
from tests.warehouse.ledger.store.conftest import S3Server, s3_server
from warehouse.ledger.lease import Attempt, Heartbeat
from warehouse.ledger.tables import VERDICTS, decode, encode

__all__ = ["s3_server"]

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIACANARY55d0c1",
    "AWS_SECRET_ACCESS_KEY": "store-canary-19b2d4",
    "GS_SECRET_ACCESS_KEY": "google-canary-a81f",
    "HF_TOKEN": "hf_canary_7f6e21",
}

NOW = "2026-11-23T07:00:00+00:00"
SUITE = "name: fake-suite\nsteps: [{step: smoke, items: 2}, {step: eval-tiny, items: 4}]\n"


@pytest.mark.parametrize("s3_server", ["moto"], indirect=True)
def test_only_the_runner_knows_and_no_process_shows_it(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node_python: Path
) -> None:
    run = FakeRun(tmp_path, store_url="s3://sweeps/here", suite=SUITE)
    for name, value in {**run.env("honest"), **SECRETS}.items():
        monkeypatch.setenv(name, value)
    watch, cluster = SecretWatch(*SECRETS.values()), LocalCluster()
    with watch.watching():
        cluster.launch(CellJob(run.store_url, "r1", run.key))
        wait_until(lambda: cluster.look(None) is not None, "the runner has ended", 120)
    ending = cluster.look(None)
    assert ending is not None and ending.code == 0, cluster.log_tail(30)
    assert any("fake_engine.py" in command for command in watch.commands)
    assert watch.leaks == set()
    assert watch.token_files == {(0o600, SECRETS["HF_TOKEN"])}, "an engine that reads the hub finds its token in a file"
    left = [path for path in run.state.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]
    assert left == []


def test_what_is_known_is_named_instead_of_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_held", {})
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS["AWS_SECRET_ACCESS_KEY"])
    monkeypatch.setenv("GS_SECRET_ACCESS_KEY", "lab")
    secrets.hold({"MY_KEY": "another-canary"})
    said = secrets.redacted("signature of store-canary-19b2d4 and another-canary is wrong in the lab")
    assert said == "signature of <AWS_SECRET_ACCESS_KEY> and <MY_KEY> is wrong in the lab"


SIGNS = "canary/\u00ff\u00ff\u00ff+19b2"  # in base64 it has a sign that the alphabet of addresses writes otherwise
QUOTED = (
    quote(SIGNS),
    quote(SIGNS, safe=""),
    quote(SIGNS, safe="").lower(),
    quote(SIGNS, safe="+"),
    quote(quote(SIGNS)),
)
IN_A_HEADER = [
    encoded.decode()
    for text in (f"{user}{SIGNS}@lab".encode() for user in ("", "u", "me", "you"))
    for encoded in (b64encode(text), urlsafe_b64encode(text))
]


@pytest.mark.parametrize("shown", [*QUOTED, *IN_A_HEADER, *map(quote, IN_A_HEADER)])
def test_what_is_known_is_named_as_addresses_and_headers_have_it(shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_held", {"MY_KEY": SIGNS})
    said = secrets.redacted(f"all 100%:\n\thttp://lab/?key={shown} a%20b")
    assert re.fullmatch(r"all 100%:\n\thttp://lab/\?key=\S{0,4}<MY_KEY>\S{0,12} a%20b", said), "and no more"


def test_a_runner_takes_ours_and_leaves_the_users_own_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_held", {})
    env = {"HF_TOKEN": "from-the-shell", "PATH": "/bin"}
    with secrets.handed({"AWS_SECRET_ACCESS_KEY": "from-the-flow", "MY_KEY": "mine"}) as fd:
        secrets.receive(os.dup(fd), env)
    assert env == {"PATH": "/bin", "MY_KEY": "mine"}
    assert (secrets.secret("HF_TOKEN"), secrets.secret("AWS_SECRET_ACCESS_KEY")) == ("from-the-shell", "from-the-flow")


def test_an_error_a_row_a_record_and_a_line_name_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_held", {"MY_KEY": "another-canary"})
    assert str(SpecsweepError("the store refused another-canary")) == "the store refused <MY_KEY>"
    kinds = {"str": "said another-canary", "list[str]": ["another-canary"]}
    row = {column.name: kinds.get(column.type, 1) for column in VERDICTS.columns}
    (kept,) = decode(encode(VERDICTS, [row]), "key")
    assert (kept["condition"], kept["details"]) == ("said <MY_KEY>", ["<MY_KEY>"])
    run = FakeRun(tmp_path)
    lease = run.leases.acquire("me")
    run.leases.beat(Heartbeat(attempt=lease.epoch, at=NOW, phase="engine", last_line="got another-canary"))
    attempt = Attempt(attempt=lease.epoch, outcome="lost", reason="", owner="me", started_at=NOW, ended_at=NOW,
                      log_tail="token another-canary")  # fmt: skip
    run.leases.close(attempt)
    written = [path.read_bytes() for path in tmp_path.rglob("*.json")]
    assert any(b"<MY_KEY>" in each for each in written) and not any(b"another-canary" in each for each in written)


@pytest.mark.parametrize("how", ["print('with canary-in-words')", "{}['canary-in-words']", "log()"])
def test_what_a_process_prints_dies_of_or_logs_shows_none(how: str) -> None:
    code = f"""
import logging
from configs import secrets
secrets.hold({{"MY_KEY": "canary-in-words"}})
secrets.guard_streams(); secrets.guard_logs(); secrets.guard_logs()
logging.basicConfig(level=20)
def log():
    logging.info("an argument: %s", "canary-in-words")
    logging.info("a wrong format: %d", "canary-in-words")
    try: raise ValueError("canary-in-words")
    except ValueError: logging.exception("it failed")
{how}
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert "<MY_KEY>" in said and "canary-in-words" not in said, said
