#!/bin/sh
# test_read.sh - `millhead list`, `inspect`, `read` and `synth`; $1 is the built command
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/common.sh"
data=$scratch/data

# value KEY: the text or number of a key in $out
value() {
    printf '%s\n' "$out" | sed -nE 's/.*"'"$1"'": "?([^",}]*).*/\1/p'
}

# add A B: the sum modulo 2^64 of 16 hexadecimal digits each
add() {
    low=$((0x${1#????????} + 0x${2#????????}))
    high=$(((0x${1%????????} + 0x${2%????????} + (low >> 32)) & 0xffffffff))
    printf '%08x%08x' "$high" "$((low & 0xffffffff))"
}

# --- list, synth, inspect
good list
contains "$out" ".npy"
good list --json
contains "$out" '{"formats": [{"name": "npy", "suffixes": [".npy", ".npz"], "what": '
contains "$out" '"sources": [{"name": "file", "arguments": [], '
contains "$out" '"codecs": ['
contains "$out" '"ops": [{"name": "decode", "arguments": "[rgb | grey | mask] [exif]", "what": '
bad 2 list extra

good synth npy "$data" --count 1001 --seed 3 --json
contains "$out" '{"files": ["'"$data"'/x.npy", "'"$data"'/label.npy"], "bytes": 72328}'
cp "$data/x.npy" "$scratch/before"
bad 1 synth npy "$data" --count 5
contains "$err" "$data/x.npy is there already"
cmp -s "$data/x.npy" "$scratch/before" || fail "synth wrote over a file"
mkdir "$scratch/half" && : >"$scratch/half/label.npy"
bad 1 synth npy "$scratch/half" --count 5
[ "$(ls "$scratch/half")" = label.npy ] || fail "synth left something behind"
good synth npy "$scratch/again" --count 1001 --seed 3
cmp -s "$data/x.npy" "$scratch/again/x.npy" || fail "another file for the same seed"
good synth npy "$scratch/other" --count 1001 --seed 4
cmp -s "$data/x.npy" "$scratch/other/x.npy" && fail "the same file for another seed"
bad 1 synth npy "$scratch/no/where" --count 5
bad 2 synth npy "$scratch/new"
bad 2 synth npy --count 5
bad 2 synth sideways "$scratch/new" --count 5
bad 2 synth npy "$scratch/new" --count 0
bad 2 synth npy "$scratch/new" --count 18446744073709551615
[ ! -e "$scratch/new" ] || fail "a refused synth made a directory"

good inspect "$data/x.npy" "$data/label.npy"
contains "$out" "npy: 1001 samples in 2 files, 72.3 kB"
good inspect "$data/x.npy" "$data/label.npy" --json
contains "$out" '{"format": "npy", "samples": 1001, "fields": [{"name": "label", "dtype": "int64", "shape": [], "bytes": 8}'
contains "$out" '{"name": "x", "dtype": "float32", "shape": [16], "bytes": 64}], "files": 2, "bytes": 72328}'
bad 2 inspect

# --- pictures
if "$millhead" list --json | grep -q '"name": "jpeg"'; then
    XDG_CACHE_HOME=$scratch/cache
    export XDG_CACHE_HOME
    good synth imagenet "$scratch/train" --count 12 --seed 3 --json
    contains "$out" '{"files": 12, "bytes": '
    made=$out
    good synth imagenet "$scratch/train2" --count 12 --seed 3 --json
    [ "$out" = "$made" ] || fail "other pictures for the same seed: $out"
    bad 1 synth imagenet "$scratch/train" --count 1
    contains "$err" "is there already"
    bad 2 synth npy "$scratch/new" --count 5 --odd
    good inspect "$scratch/train"
    contains "$out" "folder: 12 samples in 12 files"
    contains "$out" "2 classes"
    good inspect "$scratch/train" --json
    contains "$out" '"classes": ["n00000000", "n00000001"], "index": {"path": "'"$scratch"'/cache/millhead/'
    good synth imagenet "$scratch/odd" --count 10 --odd
    good read "$scratch/odd" --batch-size 4 --on-error replace --json --hash \
        --pipeline "decode | random_resized_crop 32 | flip"
    contains "$out" '"replaced": 1'
    bad 1 read "$scratch/odd" --pipeline "decode | resize 32x32"
    contains "$err" "odd_truncated.JPEG: truncated"
fi

# --- read
set -- "$data/x.npy" "$data/label.npy"
good read "$@"
contains "$out" "1001 samples in 1001 batches, 72.1 kB"
echo "$out" | grep -qE "^wait for a batch: median [0-9.e-]+ (us|ms|s), p99 [0-9.]+ (us|ms|s), longest" ||
    fail "waits without their units: $out"
good read "$@" --batch-size 10 --json
contains "$out" '{"samples": 1001, "batches": 101, "bytes_read": 72072, "seconds": '
contains "$out" '"wait_ms": {"p50": '
contains "$out" '"batches_copied_out": '
lacks "$out" xxh3
good read "$@" --batch-size 10 --drop-last --limit-batches 7 --fields label --json
contains "$out" '{"samples": 70, "batches": 7, "bytes_read": 560, '
good read "$@" --start 1001 --json
contains "$out" '{"samples": 0, "batches": 0, '

# --- what is refused, with the place
printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '|O', 'fortran_order': False, 'shape': (9,), }" \
    >"$scratch/object.npy"
head -c 500 "$data/x.npy" >"$scratch/short.npy"
: >"$scratch/empty.npy"
printf 'no array' >"$scratch/text.npy"
good synth npy "$scratch/small" --count 9
for verb in inspect read; do
    bad 1 $verb "$scratch/nowhere.npy"
    contains "$err" "cannot open $scratch/nowhere.npy"
    bad 1 $verb "$scratch/empty.npy"
    contains "$err" "$scratch/empty.npy is empty"
    bad 1 $verb "$scratch/text.npy"
    contains "$err" "$scratch/text.npy has none of the formats"
    bad 1 $verb "$scratch/short.npy"
    contains "$err" "$scratch/short.npy: the header says 64064 bytes of data, there are 372"
    bad 1 $verb "$scratch/object.npy"
    contains "$err" "$scratch/object.npy: npy array of Python objects"
    bad 1 $verb "$data/x.npy" "$scratch/small/label.npy"
    contains "$err" "$scratch/small/label.npy has 9"
    bad 2 $verb --wrong
done
bad 1 read "$data/x.npy" "$scratch/small/label.npy" --fields x
bad 2 read "$@" --fields x,lable
contains "$err" "unknown field 'lable': there are label, x; did you mean 'label'? (read): "
bad 2 read "$@" --batch-size 1000 --memory 10kB
contains "$err" "and memory allows only 10 kB (read): give a smaller --batch-size or more --memory"
bad 2 read "$@" --rank 2 --world 2
contains "$err" "rank 2 of 2 does not exist"
bad 2 read "$@" --start 1002
bad 2 read "$@" --drop-last --uneven
bad 2 read "$@" --batch-size 0
bad 2 read "$@" --shuffle=sideways
bad 2 read "$@" --shuffle block
contains "$err" "--shuffle is 'block' (read): did you mean 'blocks'?"
bad 2 read "$@" --seed -1
bad 2 read

# --- Ctrl-C; a shell ignores SIGINT for what it starts in the background
good synth npy "$scratch/large" --count 300000 --columns 8
for seconds in 0.1 0.5 0.02 2; do # the first may be too early or too late on a busy machine
    "$millhead" read "$scratch/large/x.npy" --shuffle >"$scratch/out" 2>"$scratch/err" &
    sleep $seconds
    kill -TERM $!
    wait $!
    got=$?
    [ $got -ne 130 ] || break
done
[ $got -eq 130 ] || fail "an interrupted read ends with $got"
contains "$(cat "$scratch/err")" "millhead: interrupted at position "
[ ! -s "$scratch/out" ] || fail "an interrupted read printed a result"

# --- hashes
if ! "$millhead" read "$1" --hash >/dev/null 2>&1; then
    bad 2 read "$1" --hash
    contains "$err" "this build has no --hash: it was made without xxhash (read): "
    [ "$failures" -eq 0 ] || exit 1
    echo "the rest needs a build with xxhash" && exit 77
fi
hashed() {
    good read "$@" --hash --json
}

for shuffle in "" --shuffle --shuffle=torch; do
    hashed "$@" --batch-size 7 $shuffle --seed 5
    stream=$(value stream_xxh3) samples=$(value samples_xxh3)
    [ ${#stream} -eq 16 ] && [ ${#samples} -eq 16 ] || fail "no hashes: $out"
    for threads in 0 1 2 8; do
        for prefetch in 1 4; do
            for memory in 20kB 1GB; do
                how="--threads $threads --prefetch $prefetch --memory $memory"
                hashed "$@" --batch-size 7 $shuffle --seed 5 $how
                [ "$(value stream_xxh3)" = "$stream" ] || fail "another stream with $shuffle $how"
            done
        done
    done
    hashed "$@" --batch-size 64 $shuffle --seed 5
    [ "$(value stream_xxh3)" != "$stream" ] || fail "batches do not count"
    [ "$(value samples_xxh3)" = "$samples" ] || fail "batches count in samples_xxh3"

    for world in 1 2 3 4; do
        sum=0000000000000000
        for rank in $(seq 0 $((world - 1))); do
            share="--uneven --world $world --rank $rank --batch-size 5 $shuffle --seed 5"
            hashed "$@" $share --limit-batches 9
            sum=$(add "$sum" "$(value samples_xxh3)")
            hashed "$@" $share --start $((9 * 5 * world))
            sum=$(add "$sum" "$(value samples_xxh3)")
        done
        [ "$sum" = "$samples" ] || fail "$world ranks, resumed: $sum and not $samples"
    done
done
for pair in "=true true" "=blocks blocks" "=torch torch" "=false false"; do
    hashed "$@" --batch-size 7 --shuffle${pair% *} --seed 5
    stream=$(value stream_xxh3)
    hashed --shuffle ${pair#* } "$@" --batch-size 7 --seed 5
    [ "$(value stream_xxh3)" = "$stream" ] || fail "--shuffle ${pair#* } is not --shuffle${pair% *}"
done
hashed "$data/label.npy" "$data/x.npy" --batch-size 7
stream=$(value stream_xxh3)
hashed "$data" --batch-size 7
[ "$(value stream_xxh3)" = "$stream" ] || fail "a folder of arrays is not its files"
hashed "$@" --shuffle --seed 5
samples=$(value samples_xxh3)
hashed "$@" --shuffle --seed 6
[ "$(value samples_xxh3)" != "$samples" ] || fail "the seed does not count"
hashed "$@" --shuffle --seed 5 --epoch 1
[ "$(value samples_xxh3)" != "$samples" ] || fail "the epoch does not count"
hashed "$data/x.npy"
stream=$(value stream_xxh3)
hashed "$@" --fields x
[ "$(value stream_xxh3)" = "$stream" ] || fail "a chosen field is hashed as another"

finish
