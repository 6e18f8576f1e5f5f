"""`sweep doctor` on a laptop without a cloud, and where a cloud (moto's control plane) is set up. It starts nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import boto3
import pytest
from moto.server import ThreadedMotoServer

from configs.checkout import ROOT
from flows.clusters.answers import NoAnswer
from flows.clusters.skypilot.task_file import load_task
from flows.plans import make_plan
from flows.terminal import cloud_checks
from flows.terminal.cloud_checks import Rented, made, sky_checks
from flows.terminal.sweep_checks import BOTH, RENTED, Asked
from lab.control.creates import create_one_at_a_time
from tasks.engine.server import free_port
from tests.command_lines import run_python
from tests.fake_box import FakeBox
from tests.loopback import Answering, serving
from warehouse.ledger.commits import Ledger
from warehouse.ledger.placement import Offer
from warehouse.ledger.store import open_store

CANARY = "hf_canary0123456789"


class Doctor:
    """Runs the command, with a SkyPilot home of its own; `env` is added to a clean environment."""

    def __init__(self, folder: Path) -> None:
        self.home, self.env, self.store = folder / "home", dict[str, str](), str(folder / "store")
        self.box = FakeBox(folder / "bin")
        shutil.copytree(ROOT / "lab" / "catalogs", self.home / ".sky" / "catalogs")

    def __call__(self, code: int | None = 0, *sweep: str) -> tuple[dict[str, dict[str, Any]], str]:
        cloudy = ("AWS_", "GS_", "SKYPILOT_", "HF_TOKEN", "GOOGLE_", "KUBECONFIG")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(cloudy)}
        clean |= {"SPECSWEEP_SKY_HOME": str(self.home), "AWS_EC2_METADATA_DISABLED": "true"}
        clean |= {"SKYPILOT_API_SERVER_LOCAL_PORT": str(free_port())}
        argv = ("-m", "flows.terminal", "doctor", *sweep, "--json", "--store", self.store)
        done = run_python(*argv, env=clean | self.env)
        assert "Traceback" not in done.stderr, done.stderr[-3000:]
        assert code in (done.returncode, None), done.stdout
        checks = json.loads(done.stdout.splitlines()[-1])["checks"]
        return {check["name"]: check for check in checks}, done.stdout + done.stderr


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    return Doctor(tmp_path)


@pytest.fixture
def moto_cloud(doctor: Doctor) -> Iterator[Doctor]:
    create_one_at_a_time()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "aws-canary-0123"}
    url = f"http://{host}:{port}"
    doctor.env = keys | {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": url, "HF_TOKEN": CANARY}
    doctor.store = "s3://sweeps/prefix"
    named = {name.lower(): value for name, value in keys.items()}
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **named)
    client.create_bucket(Bucket="sweeps")
    client.close()
    yield doctor
    server.stop()


@pytest.mark.slow(7)
def test_a_laptop_without_a_cloud_gets_remarks_and_exit_code_0(doctor: Doctor) -> None:
    checks, _ = doctor()
    server = checks["SkyPilot API server"]
    assert server["ok"] and server["detail"] == "not started: the first run starts it"
    remedies = {"cloud AWS": "aws configure", "cloud GCP": "Google Cloud CLI", "secret HF_TOKEN": "export"}
    for name, remedy in remedies.items():
        assert checks[name]["ok"] and checks[name]["remark"] and remedy in checks[name]["remedy"], name
    assert "no cloud is enabled" in checks["spot offers of h100-spot"]["detail"]
    assert all(check["ok"] for name, check in checks.items() if name.startswith(("cloud", "secret", "spot")))
    assert not list((doctor.home / ".sky").glob("api_server*")), "it started a server"


@pytest.mark.slow(9)
def test_where_a_cloud_is_set_up_it_shows_offers_with_prices_and_no_secret(moto_cloud: Doctor) -> None:
    checks, printed = moto_cloud()
    assert checks["cloud AWS"]["detail"] == "enabled"
    offers = checks["spot offers of h100-spot"]["detail"]
    assert offers.startswith("aws/us-east-1a spot p5.4xlarge 2.25 USD/h; aws/us-east-1b spot p5.4xlarge 2.35 USD/h")
    assert checks["secret HF_TOKEN"]["detail"] == "set"
    assert CANARY not in printed and "aws-canary-0123" not in printed
    travelling = checks["what travels to nodes"]
    assert travelling["ok"] and "HF_TOKEN, AWS_ACCESS_KEY_ID" in travelling["detail"]
    assert travelling["detail"].endswith("files with a key: none")
    assert checks["store s3://sweeps/prefix: clocks agree"]["ok"]
    assert "no rented node can reach it" in checks["store s3://sweeps/prefix: reachable from nodes"]["detail"]


@pytest.mark.slow(7)
def test_a_store_that_cannot_be_opened_is_a_problem_and_the_rest_is_still_told(doctor: Doctor) -> None:
    doctor.store = "gs://bucket/prefix"
    checks, _ = doctor(code=1)
    assert "set GS_ACCESS_KEY_ID" in checks["store"]["detail"] and not checks["store"]["ok"]
    assert "SkyPilot" in checks and checks["SkyPilot"]["ok"]


@pytest.mark.slow(46)
def test_what_the_next_command_makes_is_a_remark_and_a_dead_server_a_problem(doctor: Doctor, tmp_path: Path) -> None:
    doctor.env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    checks, _ = doctor()
    for name, command in (("environment engine-cpu", "make demo"), ("demo family, on request", "run demo-diffusion")):
        assert checks[name]["ok"] and checks[name]["remark"] and command in checks[name]["remedy"]
    assert checks["demo family"]["ok"] and not checks["demo family"]["remark"], "it is shipped"
    for name in ("environment lm-eval", "environment inspect", "environment hret"):
        assert checks[name]["ok"] and checks[name]["remark"] and "first run with one" in checks[name]["remedy"]
    doctor.env["SKYPILOT_API_SERVER_ENDPOINT"] = f"http://127.0.0.1:{free_port()}"
    checks, _ = doctor(code=1)
    assert not checks["SkyPilot API server"]["ok"] and checks["SkyPilot API server"]["remedy"]


@pytest.mark.slow(38)
def test_a_machine_with_a_card_shows_card_driver_memory_and_vllm(doctor: Doctor, tmp_path: Path) -> None:
    box = doctor.box
    box.card("NVIDIA H200", 20480, apps="echo 'GPU-aaaa, 4711, 20000, /usr/bin/python3'")
    box.vllm("0.32.0")
    doctor.env = box.env | {"HF_HOME": str(tmp_path / "hub")}
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "token").write_text(CANARY)
    checks, said = doctor(code=None)
    card = checks["GPU 0"]
    assert card["detail"] == (
        "NVIDIA H200, 120.4 of 140.4 GiB free, driver 580.95.05, CUDA up to 13.0, "
        "20.0 GiB in use by /usr/bin/python3 (process 4711, 19.5 GiB), `gpu: h200`"
    )
    assert card["ok"] and card["remark"] and "no speed measured here" in card["remedy"], "somebody else is on it"
    assert checks["vLLM on the PATH"]["detail"] == f"0.32.0, {box.folder}/vllm"
    assert checks["disk for weights"]["ok"] and f"free in {tmp_path}/hub/hub" in checks["disk for weights"]["detail"]
    assert f"the one in {tmp_path}/hub/token" in checks["secret HF_TOKEN"]["detail"] and CANARY not in said


@pytest.mark.slow(38)
def test_a_card_that_no_file_knows_and_an_old_vllm_are_remarks(doctor: Doctor) -> None:
    doctor.box.card("NVIDIA Z9")
    doctor.box.vllm("0.24.0")
    doctor.env = doctor.box.env
    checks, _ = doctor()
    assert checks["GPU 0"]["remark"] and "into gpus/ beside your sweep" in checks["GPU 0"]["remedy"]
    old = checks["vLLM on the PATH"]
    assert old["remark"] and old["detail"].startswith("0.24.0, ")
    assert all(flag in old["remedy"] for flag in ("--enable-per-request-metrics", "--per-request-spec-decode-metrics"))


@pytest.mark.slow(19)
def test_a_driver_that_shows_no_card_is_a_problem_and_so_is_a_vllm_that_does_not_start(doctor: Doctor) -> None:
    doctor.box.dead_driver()
    doctor.box.vllm("")
    doctor.env = doctor.box.env
    checks, _ = doctor(code=1)
    assert not checks["GPU"]["ok"] and "nvidia-smi" in checks["GPU"]["remedy"]
    broken = checks["vLLM on the PATH"]
    assert not broken["ok"] and "libcudart.so.13" in broken["detail"] and "mend that installation" in broken["detail"]


class Outside(Answering):
    """The hub, an image's registry and AWS's quotas on one port; `gated`: whether the hub refuses the model."""

    gated: ClassVar[bool] = False
    status: ClassVar[int] = 200  # what the hub says to the rest
    quota: ClassVar[float] = 16.0

    def do_HEAD(self) -> None:
        self.reply(200, headers={"Docker-Content-Digest": "sha256:" + "5c" * 32})

    def do_GET(self) -> None:
        self.reply(*((403, b"", {"X-Error-Code": "GatedRepo"}) if self.gated else (self.status,)))

    def do_POST(self) -> None:
        self.received()
        self.reply(200, json.dumps({"Quota": {"Value": self.quota}}).encode())


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in (("gated", False), ("status", 200), ("quota", 16.0)):
        monkeypatch.setattr(Outside, name, value)
    with serving(Outside) as address:
        yield address


def write_sweep(folder: Path, address: str, *, budget_usd: float, most_usd_h: float = 12.0) -> str:
    """A user's sweep with a task and an engine of its own; the image's registry is at `address`."""
    (folder / "engines").mkdir(parents=True)
    engine = (ROOT / "configs" / "engines" / "transformers.yaml").read_text()
    mine = engine.replace("name: transformers", "name: mine")
    mine = mine.replace("vllm/vllm-openai:v0.32.0", f"{address}/team/it:v1")
    (folder / "engines" / "mine.yaml").write_text(mine)
    task = (ROOT / "sky" / "h100-spot.yaml").read_text()
    (folder / "task.yaml").write_text(task.replace("max_hourly_cost: 12.0", f"max_hourly_cost: {most_usd_h}"))
    cloud = f"{{task: task.yaml, budget: {{run_usd: {budget_usd}}}}}"
    head = f"name: mine\nengine: mine\ngpu: h100\nsuite: transformers\nspot: true\ncloud: {cloud}\n"
    cells = "serving: {max_model_len: 4096}\ncells:\n  - {model: gemma-4-31b, precision: bf16, technique: ar}\n"
    (folder / "sweep.yaml").write_text(head + cells)
    return str(folder / "sweep.yaml")


def asked_of(name: str, folder: Path) -> Asked:
    plan = make_plan(name)
    assert plan.cloud is not None
    return Asked(name, plan, Ledger(open_store(str(folder)), "r1"), str(folder), load_task(plan.cloud.task))


@pytest.mark.parametrize(
    ("status", "endpoint", "words"),
    [
        (200, None, "lets 1 repo be read"),
        (503, None, "did not say of models/google/gemma-4-31B-it (503)"),
        (404, None, "did not say of models/google/gemma-4-31B-it (404)"),
        (200, "http://hub:none", "can't be reached from here (InvalidURL), to ask about 1 repo"),
    ],
)
def test_what_the_hub_does_not_say_is_a_remark(
    tmp_path: Path, outside: str, monkeypatch: pytest.MonkeyPatch, status: int, endpoint: str | None, words: str
) -> None:
    monkeypatch.setattr(Outside, "status", status)
    monkeypatch.setenv("HF_ENDPOINT", endpoint or f"http://{outside}")
    asked = asked_of(write_sweep(tmp_path / "my", outside, budget_usd=50), tmp_path / "store")
    (line,) = made("hub", partial(BOTH["hub"], asked))
    assert line.ok and words in line.detail and line.remark == ("lets" not in words)


def test_each_image_that_cannot_be_pinned_is_told(tmp_path: Path) -> None:
    registry = f"127.0.0.1:{free_port()}"
    asked = asked_of(write_sweep(tmp_path / "my", registry, budget_usd=50), tmp_path / "store")
    (one,) = asked.plan.cells
    engine = one.cell.engine.model_copy(update={"image": f"{registry}/team/other:v1"})
    other = one.model_copy(update={"cell": one.cell.model_copy(update={"engine": engine})})
    asked = asked._replace(plan=asked.plan.model_copy(update={"cells": (one, other)}))
    lines = made("image", partial(RENTED["image"], asked))
    assert [(line.ok, image in line.detail) for line, image in zip(lines, ("it:v1", "other:v1"), strict=True)] == [
        (False, True), (False, True),
    ]  # fmt: skip


@pytest.mark.slow(9)
@pytest.mark.parametrize(("enabled", "ok"), [(["GCP"], False), (["AWS", "GCP"], True)])
def test_what_a_remote_server_lacks_has_a_remedy_and_a_quota_nobody_tells_hides_no_offer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, enabled: list[str], ok: bool
) -> None:
    def silent(_: object) -> bool:
        raise NoAnswer("no answer within 1 s; remedy: ask again")

    asked = asked_of(write_sweep(tmp_path / "my", "127.0.0.1:1", budget_usd=50), tmp_path / "store")
    assert asked.file is not None
    resources = asked.file.config["resources"] | {"infra": "aws"}
    resources.pop("any_of", None)
    file = asked.file._replace(config=asked.file.config | {"resources": resources})
    offer = Offer(cloud="aws", region="r", zone="z", instance_type="i", spot=True, price_usd_h=1.0, price_source="s")
    told: dict[str, Any] = {"enabled_clouds": lambda: enabled, "rentable": lambda *_: [offer], "has_quota": silent}
    for name, answer in (told | {"travelling": lambda _: []}).items():
        monkeypatch.setattr(cloud_checks, name, answer)
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    checks = {line.name: line for line in sky_checks(Rented(file, asked.store_url, asked.plan))}
    assert checks["clouds"].ok == ok and "for AWS" in checks["clouds"].remedy
    assert checks["offers"].ok and "1.00 USD/h" in checks["offers"].detail
    assert checks["quota"] == ("quota", False, "no answer within 1 s", "ask again", False)


@pytest.mark.slow(16)
def test_a_sweep_that_cannot_run_says_every_reason_at_once(
    doctor: Doctor, tmp_path: Path, outside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Outside, "gated", True)
    doctor.env = {"HF_ENDPOINT": f"http://{outside}", "HF_TOKEN": CANARY}
    sweep = write_sweep(tmp_path / "my", f"127.0.0.1:{free_port()}", budget_usd=0.01)
    (doctor.home / ".runpod").mkdir()
    (doctor.home / ".runpod" / "config.toml").write_text("[default]\napi_key='X'\n")
    checks, printed = doctor(1, sweep)
    bad = {name: f"{check['detail']}  {check['remedy']}" for name, check in checks.items() if not check["ok"]}
    wanted = {
        f"store {doctor.store}: reachable from nodes": "s3://",
        "hub": "models/google/gemma-4-31B-it (GatedRepo)",
        "image": "does not answer",
        "budget": "its budget is 0.01",
        "cloud AWS": "aws configure",
        "cloud GCP": "Google Cloud CLI",
        "what travels to nodes": "nodes of aws would get ~/.runpod/config.toml",
        "offers": "no cloud is enabled",
    }
    for name, words in wanted.items():
        assert words in bad[name], (name, bad)
    assert checks["engine rehearsal"]["ok"] and checks["datasets"]["ok"] and CANARY not in printed
    assert not [name for name in checks if name.startswith(("GPU", "environment", "demo", "vLLM"))], "it is rented"


@pytest.mark.slow(18)
@pytest.mark.parametrize(
    ("most_usd_h", "quota", "bad"), [(12.0, 16.0, None), (12.0, 0.0, "quota"), (0.5, 16.0, "offers")]
)
def test_a_sweep_is_held_against_its_own_task_and_account(
    moto_cloud: Doctor,
    tmp_path: Path,
    outside: str,
    monkeypatch: pytest.MonkeyPatch,
    most_usd_h: float,
    quota: float,
    bad: str | None,
) -> None:
    monkeypatch.setattr(Outside, "quota", quota)
    with (moto_cloud.home / ".sky/catalogs/v8/aws/instance_quota_mapping.csv").open("a") as codes:
        codes.write("p5.4xlarge,L-7212CCBC,L-417A185B\n")
    moto_cloud.env |= {name: f"http://{outside}" for name in ("HF_ENDPOINT", "AWS_ENDPOINT_URL_SERVICE_QUOTAS")}
    checks, printed = moto_cloud(None, write_sweep(tmp_path / "my", outside, budget_usd=50, most_usd_h=most_usd_h))
    assert CANARY not in printed and "aws-canary-0123" not in printed
    assert {name for name, check in checks.items() if not check["ok"]} - {"ssh and rsync"} == ({bad} if bad else set())
    if bad == "offers":
        said = checks["offers"]["detail"]
        assert "max_hourly_cost" in said and str(tmp_path / "my" / "task.yaml") in said
        return
    assert checks["offers"]["detail"].startswith("aws/us-east-1a spot p5.4xlarge 2.25 USD/h")
    assert checks["image"]["detail"] == f"{outside}/team/it@sha256:" + "5c" * 32
    assert checks["what travels to nodes"]["detail"].endswith("files with a key: none")
    assert bad != "quota" or "P5 Spot" in checks["quota"]["remedy"]


@pytest.mark.slow(14)
def test_a_sweep_of_this_machine_needs_no_cloud_and_no_bucket(doctor: Doctor) -> None:
    checks, _ = doctor(0, "transformers-tiny")
    assert checks["this machine"]["ok"] and checks["datasets"]["ok"]
    assert not [name for name in checks if name.startswith(("cloud", "offers", "SkyPilot", "image", "budget"))]
    assert not (doctor.home / ".sky" / "state.db").exists(), "SkyPilot was not asked"
