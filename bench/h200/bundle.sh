#!/usr/bin/env bash
# bundle.sh OUT: on a machine with a package index, put all that a GPU host without a network lacks into folders that
# are small enough to travel one at a time: OUT/1, OUT/2, OUT/3. Needs pip, unzip and xz; takes some minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "$1")
part_bytes=55000000 # with the working tree (7 MB as it travels) below 64 MiB: pack.sh asks
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$out"

platforms=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64)
for glibc in 39 35 34 31 28 27 24 17; do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done

site() { # site REQUIREMENTS FOLDER: what pip would install, unpacked
    python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
        "${platforms[@]}" -d "$tmp/wheels-$2" -r "$1"
    for wheel in "$tmp/wheels-$2"/*.whl; do unzip -q -o "$wheel" -d "$tmp/$2"; done
    for data in "$tmp/$2"/*.data/{pure,plat}lib; do [ ! -d "$data" ] || cp -r "$data/." "$tmp/$2/"; done
}

# the node's own pins; pyarrow is there, and a store in a folder needs nothing of S3
grep -vE '^(#|pyarrow|boto3|botocore|s3transfer|jmespath)' "$here/../../requirements/node.txt" >"$tmp/node.txt"
site "$tmp/node.txt" node
tar c -C "$tmp/node" --exclude='./*.data' . | xz -T0 -6 >"$tmp/node.tar.xz"

# vLLM without what a Hopper card never loads
site "$here/engine.txt" engine
tar c -C "$tmp/engine" --exclude='./*.data' --exclude=./vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so \
    --exclude=./vllm/vllm-rs --exclude=./vllm/third_party/fmha_sm100 --exclude=./xgrammar/lib/libxgrammar.a \
    --exclude=./mistral_common/data --exclude=./pycountry/locales . | xz -T0 -6 >"$tmp/engine.tar.xz"

split -b "$part_bytes" -d -a 1 --numeric-suffixes=1 "$tmp/engine.tar.xz" "$tmp/engine.part."
for part in "$tmp"/engine.part.*; do
    mkdir -p "$out/${part##*.}"
    mv "$part" "$out/${part##*.}/"
done
mv "$tmp/node.tar.xz" "$out/${part##*.}/"
du -ab "$out"
