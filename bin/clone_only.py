"""The build backend that pyproject.toml names. It builds nothing: it says what to do instead.

A wheel of this repository would claim the top-level names `configs`, `tasks` and `flows`, and lack `sky/`,
`requirements/` and `bin/`. Whatever pip, uv or build ask of a backend, they import it first.
"""

import sys

sys.exit("specsweep runs from its clone and is not installed: git clone the repository, then run `make demo` in it")
