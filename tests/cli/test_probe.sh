#!/bin/sh
# test_probe.sh - `millhead probe`; $1 is the built command
# SPDX-License-Identifier: Apache-2.0
set -u
millhead=$1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# expect CODE ARGUMENTS...: runs the command and keeps its output in $out and $err.
expect() {
    code=$1
    shift
    "$millhead" probe "$@" >"$scratch/out" 2>"$scratch/err"
    got=$?
    out=$(cat "$scratch/out")
    err=$(cat "$scratch/err")
    [ "$got" = "$code" ] || fail "millhead probe $*: exit $got, expected $code: $err"
}

good() {
    expect 0 "$@"
    [ -z "$err" ] || fail "millhead probe $*: said '$err'"
}

# bad CODE ARGUMENTS...: one line "millhead: WHAT (probe): TO DO" and nothing printed.
bad() {
    expect "$@"
    shift
    [ -z "$out" ] || fail "millhead probe $*: printed '$out'"
    [ "$(wc -l <"$scratch/err")" -eq 1 ] || fail "millhead probe $*: not one line: '$err'"
    case $err in
    "millhead: "*" (probe): "*) ;;
    *) fail "millhead probe $*: message '$err'" ;;
    esac
}

contains() {
    case $1 in
    *"$2"*) ;;
    *) fail "'$2' is not in: $1" ;;
    esac
}

good --help
contains "$out" "--read-only"

mkdir "$scratch/data"
good "$scratch/data" --size 2MiB --seconds 0.2
contains "$out" "memory copy"
contains "$out" "page cache"
contains "$out" "host to device"
contains "$out" "a temporary file in $scratch/data"
[ -z "$(ls -A "$scratch/data")" ] || fail "something was left in the directory"
good "$scratch/data" --size 2MiB --seconds 0.2 --json
contains "$out" '{"path": "'"$scratch"'/data", "file": "a temporary file in '
contains "$out" '"bytes": 2097152, "network": '
contains "$out" '"tiers": [{"name": "memory copy", "mb_per_s": '

head -c 100000 /dev/zero >"$scratch/data/\"a\" file"
good "$scratch/data" --read-only --seconds 0.2 --json
contains "$out" '/\"a\" file", "bytes": 98304, '
good "$scratch/data/\"a\" file" --seconds 0.2

bad 1 "$scratch/nowhere"
contains "$err" "give a path that is there"
bad 1 "$scratch/data" --size 900000TB
contains "$err" "the probe needs 900000000000 MB (probe): free some"
bad 2 https://example.org/shard.tar
contains "$err" "no HTTP client"
bad 2 "$scratch/data" extra
bad 2 "$scratch/data" --size 1kB
bad 2 "$scratch/data" --size lots
bad 2 "$scratch/data" --seconds 0
bad 2 "$scratch/data" --seconds 4000
bad 2 --wrong

[ "$failures" -eq 0 ] || exit 1
echo "all passed"
