#!/bin/sh
# test_probe.sh - `millhead probe`; $1 is the built command
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/common.sh"

good probe --help
contains "$out" "--read-only"

mkdir "$scratch/data"
good probe "$scratch/data" --size 2MiB --seconds 0.2
contains "$out" "memory copy"
contains "$out" "page cache"
contains "$out" "host to device"
contains "$out" "a temporary file in $scratch/data"
[ -z "$(ls -A "$scratch/data")" ] || fail "something was left in the directory"
good probe "$scratch/data" --size 2MiB --seconds 0.2 --json
contains "$out" '{"path": "'"$scratch"'/data", "file": "a temporary file in '
contains "$out" '"bytes": 2097152, "network": '
contains "$out" '"tiers": [{"name": "memory copy", "mb_per_s": '

head -c 100000 /dev/zero >"$scratch/data/\"a\" file"
good probe "$scratch/data" --read-only --seconds 0.2 --json
contains "$out" '/\"a\" file", "bytes": 98304, '
good probe "$scratch/data/\"a\" file" --seconds 0.2

bad 1 probe "$scratch/nowhere"
contains "$err" "check the path"
if [ -d /proc/self ]; then
    bad 1 probe /proc
    contains "$err" "/proc is made by the kernel: there is no storage to measure (probe): give a directory to write in"
fi
mkfifo "$scratch/pipe"
timeout 10 "$millhead" probe "$scratch/pipe" >"$scratch/out" 2>"$scratch/err"
[ $? -eq 1 ] || fail "a pipe was not refused at once"
bad 1 probe "$scratch/data" --size 900000TB
contains "$err" "the probe needs 900000000000 MB (probe): free some"
bad 2 probe ftp://bucket/shard.tar
contains "$err" "ftp:// is not supported"
bad 1 probe http://127.0.0.1:1/shard.tar
bad 2 probe "$scratch/data" extra
bad 2 probe "$scratch/data" --size 1kB
bad 2 probe "$scratch/data" --size lots
bad 2 probe "$scratch/data" --seconds 0
bad 2 probe "$scratch/data" --seconds 4000
bad 2 probe --wrong

finish
