#!/usr/bin/env bash
# keep.sh FOLDER...: on the GPU host, keep what this call brought along, until unpack.sh finds all parts.
set -euo pipefail
root=${GPU_ROOT:-/tmp/specsweep-gpu}
mkdir -p "$root/parts"
for folder in "$@"; do cp "$folder"/* "$root/parts/"; done
ls -l "$root/parts"
