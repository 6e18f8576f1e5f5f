#!/usr/bin/env bash
# work.sh SECONDS [WORD... [/ WORD...]]: on the GPU host, let the workers go on for so long, then bring the store and all
# logs back as $OUT/store.tar.gz. The first call starts them, one for each group of words (a `/` stands between groups),
# each with a card and a state of its own (what vLLM compiles for one, all find); they are in sessions of their own and
# outlive a call: the next one finds them at work. A worker begins no cell once less than LEAST_PER_START_S for each of
# its engine starts is left of LEASE_S, counted from its start; then it stops. WORDS choose cells and their order: parts
# of their names, or beginnings of their keys.
set -euo pipefail
root=${GPU_ROOT:-/tmp/specsweep-gpu}
wait_s=$1
shift
alive() {
    for pid in "$root"/worker-*.pid; do
        if [ -e "$pid" ] && kill -0 "$(cat "$pid")" 2>/dev/null; then return 0; fi
    done
    return 1
}
start() { # start CARD [WORD...]
    local card=$1
    shift
    CUDA_VISIBLE_DEVICES=$card XDG_CACHE_HOME=$root/cache PATH=$root/bin:$PATH PYTHONPATH=$root/node:. PYTHONUNBUFFERED=1 \
        SPECSWEEP_STATE=$root/state/$card SPECSWEEP_GIT_SHA=$(cut -d' ' -f1 "$root/parts/commit") \
        SPECSWEEP_GIT_DIRTY=$(cut -d' ' -f2 "$root/parts/commit") \
        setsid nohup python3 bench/h200/worker.py --store "$root/store" --logs "$root/logs" --runs "$root/parts/runs" \
        --seconds "${LEASE_S:-1380}" --least-per-start "${LEAST_PER_START_S:-320}" "$@" \
        >>"$root/logs/worker-$card.log" 2>&1 </dev/null &
    echo $! >"$root/worker-$card.pid"
}

[ -e "$root/ready" ] || { echo "work: this host is not ready, unpack.sh has not come to its end" >&2; exit 1; }
if ! alive; then
    cd "$root/project"
    card=0 words=()
    for word in "$@" /; do
        if [ "$word" != / ]; then
            words+=("$word")
            continue
        fi
        mkdir -p "$root/state/$card"
        start "$card" "${words[@]}"
        card=$((card + 1)) words=()
    done
    sleep 1
fi
while alive && [ "$SECONDS" -lt "$wait_s" ]; do sleep 1; done

if alive; then echo "still at work"; else echo "the workers have ended"; fi
cat "$root"/logs/worker-*.log
for log in "$root"/logs/node-*.log; do [ ! -e "$log" ] || { echo "== $log"; grep -v '^\[waiting\]' "$log" | tail -4; }; done
for log in "$root"/state/*/cells/*/engine*.log; do
    [ ! -e "$log" ] || cp "$log" "$root/logs/$(basename "$(dirname "$log")").$(basename "$log")"
done
nvidia-smi --query-gpu=index,power.draw,clocks.sm,temperature.gpu,memory.used --format=csv,noheader
code=0
tar czf "$OUT/store.tar.gz" -C "$root" store logs || code=$?
[ "$code" -le 1 ] # 1: a file grew meanwhile, such as a heartbeat
ls -l "$OUT"
