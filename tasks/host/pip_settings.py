"""What pip is configured with, said to uv, which does not read it (standard library only)."""

from __future__ import annotations

import ast
import os
import re

SAID = {
    "index-url": ("UV_DEFAULT_INDEX",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "constraint": ("UV_CONSTRAINT", "UV_BUILD_CONSTRAINT"),
    "trusted-host": ("UV_INSECURE_HOST",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "retries": ("UV_HTTP_RETRIES",),
}
"""A setting of pip -> uv's variables for it; no arguments, which others may read: an index may name a password."""

LISTS = ("extra-index-url", "find-links", "constraint", "trusted-host")
PATHS = ("find-links", "constraint", "cert", "client-cert")

WITHOUT_EFFECT = frozenset(
    "disable-pip-version-check no-input quiet verbose progress-bar no-color log cache-dir no-cache-dir compile "
    "no-compile exists-action no-warn-script-location no-warn-conflicts root-user-action break-system-packages "
    "no-deps prefer-binary".split()
)
"""They change nothing of what is installed from complete, exact pins, or where it comes from."""


class UntoldError(ValueError):
    """Pip is configured with something that uv can't be told; the text names it, without its value."""


def for_uv(listed: str) -> tuple[dict[str, str], list[str]]:
    """Variables and arguments that tell uv what `pip config list` printed; raises UntoldError if it can't be told."""
    settings: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # each goes before those in front of it, as for `pip install`
        for key, value in re.findall(rf"^{section}\.(\S+?)=(.*)$", listed, re.MULTILINE):
            if text := str(ast.literal_eval(value)).strip():
                settings[key] = text
    variables, arguments = {"UV_INDEX_STRATEGY": "unsafe-best-match"}, []  # to pip, all indexes are equal
    for key, text in settings.items():
        if key == "no-index":
            arguments += ["--no-index"] if text.lower() in ("1", "true", "yes", "on", "y", "t") else []
        elif key in SAID:
            each = text.split() if key in LISTS else [text]
            value = ("," if key == "find-links" else " ").join(map(_whole, each) if key in PATHS else each)
            variables |= dict.fromkeys(SAID[key], value.split(".")[0] if key.endswith("timeout") else value)
        elif key not in WITHOUT_EFFECT:
            raise UntoldError(f"pip is configured with {key}, which uv can't be told")
    return variables, arguments


def _whole(place: str) -> str:
    """A path from the root: uv runs in another folder than pip. An address stays."""
    return place if "://" in place else os.path.abspath(os.path.expanduser(place))  # noqa: PTH100, PTH111
