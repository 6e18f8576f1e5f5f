#!/usr/bin/env bash
# pack.sh OUT STORE SWEEP...: here, record the sweeps' runs in a store and put it into OUT/store for the GPU host, with
# all that earlier leases measured. Which card will be lent may not be known: GPUS="h200 h100" records a run for each, and
# the worker measures those of the card that it finds.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
out=$(realpath -m "$1")/store store=$(realpath -m "$2")
shift 2
mkdir -p "$out" "$store"
cd "$here"
for sweep in "$@"; do
    for gpu in ${GPUS:-""}; do
        PYTHONPATH=. "$(bin/environment control)" bench/h200/record.py "$store" "$sweep" ${gpu:+"$gpu"}
    done
done | tee "$out/cells"
cut -d' ' -f1 "$out/cells" | uniq >"$out/runs"
tar czf "$out/store.tar.gz" -C "$store" .
dirty=$([ -z "$(git status --porcelain --untracked-files=no)" ] && echo 0 || echo 1)
echo "$(git rev-parse HEAD) $dirty" >"$out/commit"
ls -l "$out"
tree_bytes=$(git ls-files -z --cached --others --exclude-standard | tar c --null --ignore-failed-read -T - | wc -c)
for part in "$out"/../[0-9]; do
    [ -d "$part" ] || continue
    travel_bytes=$((tree_bytes + $(tar c -C "$out/.." "${part##*/}" store | wc -c)))
    if [ "$travel_bytes" -gt $((64 << 20)) ]; then
        echo "pack: $part and the tree are $travel_bytes bytes, and 64 MiB travel: bundle.sh in smaller parts" >&2
        exit 1
    fi
done
