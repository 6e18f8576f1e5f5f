#!/usr/bin/env bash
# pack.sh OUT STORE SWEEP...: here, record the sweeps' runs in a store and put it into OUT/store for the GPU host, with
# all that earlier leases measured.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
out=$(realpath -m "$1")/store store=$(realpath -m "$2")
shift 2
mkdir -p "$out" "$store"
cd "$here"
for sweep in "$@"; do PYTHONPATH=. "$(bin/environment control)" bench/h200/record.py "$store" "$sweep"; done
tar czf "$out/store.tar.gz" -C "$store" .
dirty=$([ -z "$(git status --porcelain --untracked-files=no)" ] && echo 0 || echo 1)
echo "$(git rev-parse HEAD) $dirty" >"$out/commit"
ls -l "$out"
