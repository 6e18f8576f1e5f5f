#!/bin/sh
# Pins every NAME.in of this folder into NAME.txt: exact versions with hashes, no registry named. Needs uv and Python 3.11.
# engine-cpu and engine-diffusion are pinned by hand, and get their hashes here. Without hashes: torch-cpu (in no
# registry), engine-suffix (an add-on, built from source) and lab-runtime (wheels that the pocket cloud builds itself).
set -eu
cd "$(dirname "$0")"
for name in ${*:-uv control node dev s3servers lab lab-runtime lm-eval inspect hret engine-cpu engine-diffusion}; do
    if [ -e "$name.in" ]; then
        set -- --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header
        [ "$name" = node ] && set -- "$@" --constraints control.txt
        [ "$name" = hret ] && set -- "$@" --override hret-overrides.txt
        uv pip compile "$@" "$name.in" -o "$name.tmp"
        {
            echo "# Pins of $name.in for Python 3.11 to 3.13, made by requirements/compile.sh. Complete: install with --no-deps."
            cat "$name.tmp"
        } >"$name.txt"
        rm "$name.tmp"
    fi
    [ "$name" != lab-runtime ] || continue
    uv pip compile --quiet --universal --python-version 3.11 --no-deps --format pylock.toml "$name.txt" -o "pylock.$name.toml"
    "${PYTHON:-python3}" hashes.py "$name.txt" "pylock.$name.toml"
    rm "pylock.$name.toml"
done
