#!/bin/sh
# test_install.sh - the examples compile and run with nothing but what `meson install` puts somewhere;
# $1: the examples' directory, $2: the build directory, the rest: the command meson
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/common.sh"
examples=$1
build=$2
shift 2
command -v pkg-config >/dev/null || { echo "needs pkg-config" && exit 77; }

"$@" install -C "$build" --no-rebuild --quiet --tags devel,runtime --destdir "$scratch/root" >"$scratch/out" 2>&1 ||
    fail "meson install: $(cat "$scratch/out")"
file=$(find "$scratch/root" -name millhead.pc)
[ -f "$file" ] || fail "no millhead.pc is installed"
export PKG_CONFIG_LIBDIR="${file%/*}" PKG_CONFIG_SYSROOT_DIR="$scratch/root"
flags=$(pkg-config --cflags millhead) || fail "pkg-config --cflags"
libraries=$(pkg-config --libs millhead) || fail "pkg-config --libs"
directory=$(pkg-config --variable=libdir millhead)
case $directory in
"$scratch"*) ;;
*) directory=$scratch/root$directory ;;
esac

# The headers by themselves, as C and as C++
strict="-Wall -Wextra -Wpedantic -Werror -fsyntax-only"
headers=$(find "$scratch/root" -path '*/include/millhead/*.h')
[ -n "$headers" ] || fail "no header is installed"
for header in $headers; do
    echo "#include <millhead/${header##*/}>" >"$scratch/alone.c"
    cc -std=c11 $strict $flags "$scratch/alone.c" || fail "${header##*/} is not C by itself"
    if echo | c++ -x c++ -fsyntax-only - 2>/dev/null; then
        c++ -std=c++11 -x c++ $strict $flags "$scratch/alone.c" || fail "${header##*/} is not C++"
    fi
done

for source in "$examples"/*.c; do
    name=${source##*/}
    cc -std=c11 -Wall -Wextra -Wpedantic -Werror "$source" -o "$scratch/${name%.c}" $flags $libraries ||
        fail "$name does not compile"
done
export LD_LIBRARY_PATH="$directory"

# A log in which training waits
log=$scratch/demo.log
{
    echo '{"event": "run start", "time": 100.0, "locals": {"num_workers": 0, "batch_size": 1}}'
    echo '{"event": "epoch start", "epoch": 0, "time": 103.0}'
    for batch in $(seq 0 29); do # 2 s of waiting before each second of training
        began=$((105 + 3 * batch))
        echo "{\"event\": \"training start\", \"batch\": $batch, \"time\": $began}"
        echo "{\"event\": \"training end\", \"batch\": $batch, \"time\": $((began + 1)), \"duration\": 1.0}"
    done
    echo '{"event": "epoch end", "epoch": 0, "time": 193.0}'
    echo '{"event": "run end", "time": 193.0}'
} >"$log"
out=$("$scratch/plan_and_judge" "$log" 1 2>&1) || fail "plan_and_judge: $out"
contains "$out" "workers: "
contains "$out" "cause: "
contains "$out" "fix: "
contains "$out" "gain: "
lacks "$out" "cause: unclear"
out=$("$scratch/plan_and_judge" "$scratch/gone" 2>&1) && fail "a run that is not there was judged"
contains "$out" "plan_and_judge: "
contains "$out" "$scratch/gone"

# Ten samples of two bytes, 0 to 19: a header of 128 bytes as NumPy writes it, then the values
array=$scratch/x.npy
{
    printf '\223NUMPY\001\000\166\000'
    printf "%-117s\n" "{'descr': '|u1', 'fortran_order': False, 'shape': (10, 2), }"
    for value in $(seq 0 19); do printf "\\$(printf %03o "$value")"; done
} >"$array"
first=
for batch in 3 4; do # the order depends on the seed alone
    out=$("$scratch/read_batches" $batch 7 "$array" 2>&1) || fail "read_batches: $out"
    contains "$out" "10 samples of npy"
    contains "$out" "field x: 2 bytes a sample"
    contains "$out" "$(((9 + batch) / batch)) batches, 10 samples, sum of bytes 190"
    sample=$(echo "$out" | grep 'first sample')
    [ "${first:=$sample}" = "$sample" ] || fail "batches of $batch begin with $sample, not $first"
done
lacks "$first" "sample: 0"
out=$("$scratch/read_batches" 4 7 "$scratch/gone.npy" 2>&1) && fail "a file that is not there was read"
contains "$out" "read_batches: "
contains "$out" "gone.npy"
finish
