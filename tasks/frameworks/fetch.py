"""Fetches raw records of a dataset from the hub, as JSON lines beside the commit that they are of.

Runs inside a framework's environment: `python -m tasks.frameworks.fetch FOLDER HUB_ID REVISION SPLIT SUBSET...`, with
REVISION "" for the newest commit. The last line of stdout is what went wrong, as JSON, or {}. A token is taken from
HF_TOKEN, never from the arguments.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Final

from tasks.frameworks.job import one_line

CONVERTED = "refs/convert/parquet"  # the hub's branch of Parquet copies of datasets that are made by a script
COMMIT_FILE = "commit.json"

STATUS_OF: Final = {401: "refused", 403: "refused", 404: "not found"}

NO_WAY = {"ConnectError", "ConnectionError", "TimeoutException", "Timeout", "TimeoutError", "OfflineModeIsEnabled"}
"""Names of errors, and of their base classes, in whichever HTTP client the hub's package uses."""


def main() -> None:
    """Fetch what is missing; say what went wrong."""
    folder, hub_id, revision, split, *subsets = sys.argv[1:]
    # the hub's answer decides about its being reachable, not a wait of minutes
    os.environ |= {"HF_HUB_ETAG_TIMEOUT": "15", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    subset = ""
    try:
        commit = _commit(Path(folder), hub_id, revision)
        for subset in subsets:
            _fetch(Path(folder), hub_id, commit, split, subset)
    except Exception as error:  # whatever it is, the runner tells the user in one line
        print(json.dumps({"kind": _kind(error), "said": _said(error), "subset": subset}))
        return
    print("{}")


def _commit(folder: Path, hub_id: str, revision: str) -> str:
    """The commit to read: that of an earlier try, so that all subsets are of one commit, or the hub's word."""
    from huggingface_hub import HfApi

    known = folder / COMMIT_FILE
    if known.exists():
        return str(json.loads(known.read_text(encoding="utf-8"))["commit"])
    info = HfApi().dataset_info(hub_id, revision=revision or None, timeout=30)
    files = {sibling.rfilename for sibling in info.siblings or ()}
    if f"{hub_id.split('/')[-1]}.py" in files and not revision:
        info = HfApi().dataset_info(hub_id, revision=CONVERTED, timeout=30)
    folder.mkdir(parents=True, exist_ok=True)
    _write(known, json.dumps({"commit": info.sha}))
    return str(info.sha)


def _fetch(folder: Path, hub_id: str, commit: str, split: str, subset: str) -> None:
    import datasets

    path = folder / f"{subset}.jsonl"
    if path.exists():
        return
    reader = datasets.load_dataset_builder(hub_id, subset, revision=commit).config
    # of CSV files: "None", "NULL" and "nan" are options there, not missing values
    as_it_stands = {"keep_default_na": False} if hasattr(reader, "keep_default_na") else {}
    rows = datasets.load_dataset(hub_id, subset, split=split, revision=commit, **as_it_stands)
    _write(path, "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows))


def _write(path: Path, text: str) -> None:
    """All of it or nothing, also where two processes fetch the same."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _kind(error: BaseException) -> str:
    """What sort of thing went wrong, by the whole chain of causes: `datasets` wraps what the hub said."""
    names = {kind.__name__ for one in _chain(error) for kind in type(one).__mro__}
    if "GatedRepoError" in names or "is a gated dataset" in str(error):
        return "refused"
    if "RevisionNotFoundError" in names:
        return "no revision"
    if "BuilderConfig" in str(error) or "Unknown split" in str(error):
        return "no subset"
    if (status := _status(error)) in STATUS_OF:
        return STATUS_OF[status]
    return "unreachable" if names & NO_WAY else "other"


def _said(error: BaseException) -> str:
    """The status is enough where there is one: the hub's own texts are long and full of addresses."""
    status = _status(error)
    return one_line(error) if status is None else f"HTTP {status}"


def _status(error: BaseException) -> int | None:
    responses = (getattr(one, "response", None) for one in _chain(error))
    return next((int(response.status_code) for response in responses if response is not None), None)


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    return chain


if __name__ == "__main__":
    main()
