#!/usr/bin/env bash
# unpack.sh: on the GPU host, from the checkout's root: make a node of what keep.sh kept. Says what answers, and how fast.
set -euo pipefail
root=${GPU_ROOT:-/tmp/specsweep-gpu}
mkdir -p "$root"/{engine,node,bin,store,logs,state,project}
cat "$root"/parts/engine.part.* | xz -dc -T0 | tar x -C "$root/engine" &
unpacking=$!
xz -dc "$root/parts/node.tar.xz" | tar x -C "$root/node"
if [ -e "$root/parts/store.tar.gz" ]; then tar xzf "$root/parts/store.tar.gz" -C "$root/store"; fi
cp -r LICENSE bench bin configs flows requirements tasks warehouse "$root/project/"
cat >"$root/bin/vllm" <<END
#!/bin/sh
# the host's own PyTorch, and beside it the vLLM that was brought along
PYTHONPATH=$root/engine exec $(command -v python3) -m vllm.entrypoints.cli.main "\$@"
END
chmod +x "$root/bin/vllm"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
(cd "$root/project" && PYTHONPATH=$root/node:. python3 -c \
    'import sys, pyarrow, tasks.cell; print("node: Python", sys.version.split()[0], "pyarrow", pyarrow.__version__)')
wait "$unpacking"
echo "unpacked after $SECONDS s"
"$root/bin/vllm" --version
echo "vLLM answers after $SECONDS s"
touch "$root/ready"
