"""Writes behind each pin of a file the sha256 of every file that it may be installed from; see compile.sh.

    uv pip compile --universal --no-deps --format pylock.toml NAME.txt -o LOCK; python3 hashes.py NAME.txt LOCK

Wheels of other systems and Pythons are left out: Linux on x86_64 or aarch64, glibc, CPython 3.11 to 3.13. A source
stays in: where no wheel fits, it is built. A pin that is in no index stands alone.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

FITTING = re.compile(
    r"-(py\d\.)*py3\d*-none-any\.whl$"
    r"|-(cp311|cp312|cp313|(cp3\d|cp310)-abi3|(py\d\.)*py3-none)\S*manylinux\S*(x86_64|aarch64)\S*\.whl$"
    r"|-(py\d\.)*py3\d*-none-linux_(x86_64|aarch64)\.whl$"
)
FREE_THREADED = re.compile(r"-cp3\d+t-")


def files_of(package: dict[str, Any]) -> list[dict[str, Any]]:
    """The wheels that fit and the source; what has neither (another system's, say) keeps all it has."""
    wheels = package.get("wheels", [])
    fitting = [each for each in wheels if FITTING.search(each["url"]) and not FREE_THREADED.search(each["url"])]
    return [*fitting, *([package["sdist"]] if "sdist" in package else [])] or wheels


def main(pins: Path, lock: Path) -> None:
    """Rewrite the file; comments, order and versions stay."""
    packages = tomllib.loads(lock.read_text(encoding="utf-8"))["packages"]
    known = {(each["name"], each["version"]): files_of(each) for each in packages}
    lines = []
    for line in pins.read_text(encoding="utf-8").splitlines():
        bare = line.split(" --hash=")[0].rstrip()
        found = re.match(r"([A-Za-z0-9._-]+)(?:\[\S*\])?==([^\s;]+)", bare)
        files = known.get((re.sub(r"[-_.]+", "-", found[1]).lower(), found[2]), []) if found else []
        hashes = sorted({each["hashes"]["sha256"] for each in files})
        lines.append(" ".join([bare, *(f"--hash=sha256:{each}" for each in hashes)]))
    pins.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
