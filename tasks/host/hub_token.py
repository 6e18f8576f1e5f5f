"""The hub's token for a child that reads the hub: a file that only we can read, named in its environment.

huggingface_hub takes HF_TOKEN, else the file that HF_TOKEN_PATH names ("Environment variables"). Of the two only the
file is not in what whoever may look at a process sees.
"""

from __future__ import annotations

import os
from pathlib import Path

from configs.secrets.held import TOKEN, secret


def token_variables(folder: Path) -> dict[str, str]:
    """What to add to a child's environment; nothing if there is no token.

    Args:
        folder: gets the file; it has to go when the child has ended.
    """
    token = secret(TOKEN)
    if token is None:
        return {}
    path = folder / "hub-token"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(token)
    return {"HF_TOKEN_PATH": str(path)}
