#!/bin/sh
# Pins every NAME.in of this folder into NAME.txt: exact versions, no registry named. Needs uv.
set -eu
cd "$(dirname "$0")"
for name in ${*:-control node dev s3servers lab lab-runtime lm-eval inspect hret}; do
    set -- --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header
    [ "$name" = node ] && set -- "$@" --constraints control.txt
    [ "$name" = hret ] && set -- "$@" --override hret-overrides.txt
    uv pip compile "$@" "$name.in" -o "$name.tmp"
    {
        echo "# Pins of $name.in for Python 3.11 to 3.13, made by requirements/compile.sh. Complete: install with --no-deps."
        [ "$name" = hret ] && grep '^torch==' engine-cpu.txt
        cat "$name.tmp"
    } >"$name.txt"
    rm "$name.tmp"
done
