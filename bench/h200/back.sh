#!/usr/bin/env bash
# back.sh STORE_TAR STORE: here, put what a lease measured into the store, and its logs beside it as STORE-logs.
set -euo pipefail
store=$(realpath -m "$2")
mkdir -p "$store" "$store-logs"
tar xzf "$1" -C "$store" --strip-components=1 store
tar xzf "$1" -C "$store-logs" --strip-components=1 logs
find "$store/runs" -name commit.json | sort
