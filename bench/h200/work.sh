#!/usr/bin/env bash
# work.sh SECONDS [WORD...]: on the GPU host, let the worker go on for so long, then bring the store and all logs back
# as $OUT/store.tar.gz. The worker is started by the first call, in a session of its own, and outlives a call: the next
# one finds it at work. It begins no cell once less than LEAST_PER_START_S for each of its engine starts is left of
# LEASE_S, counted from the worker's start; then it stops. WORDS choose cells: parts of their names, or beginnings of
# their keys.
set -euo pipefail
root=${GPU_ROOT:-/tmp/specsweep-gpu}
wait_s=$1
shift
alive() { [ -e "$root/worker.pid" ] && kill -0 "$(cat "$root/worker.pid")" 2>/dev/null; }

if ! alive; then
    cd "$root/project"
    PATH=$root/bin:$PATH PYTHONPATH=$root/node:. PYTHONUNBUFFERED=1 SPECSWEEP_STATE=$root/state \
        SPECSWEEP_GIT_SHA=$(cut -d' ' -f1 "$root/parts/commit") SPECSWEEP_GIT_DIRTY=$(cut -d' ' -f2 "$root/parts/commit") \
        setsid nohup python3 bench/h200/worker.py --store "$root/store" --logs "$root/logs" \
        --seconds "${LEASE_S:-1380}" --least-per-start "${LEAST_PER_START_S:-320}" "$@" \
        >>"$root/logs/worker.log" 2>&1 </dev/null &
    echo $! >"$root/worker.pid"
    sleep 1
fi
while alive && [ "$SECONDS" -lt "$wait_s" ]; do sleep 1; done

if alive; then echo "still at work"; else echo "the worker has ended"; fi
cat "$root/logs/worker.log"
for log in "$root"/logs/node-*.log; do [ ! -e "$log" ] || { echo "== $log"; grep -v '^\[waiting\]' "$log" | tail -4; }; done
for log in "$root"/state/cells/*/engine*.log; do
    [ ! -e "$log" ] || cp "$log" "$root/logs/$(basename "$(dirname "$log")").$(basename "$log")"
done
du -sm "$root/state/vllm-cache" 2>/dev/null || :
code=0
tar czf "$OUT/store.tar.gz" -C "$root" store logs || code=$?
[ "$code" -le 1 ] # 1: a file grew meanwhile, such as a heartbeat
ls -l "$OUT"
