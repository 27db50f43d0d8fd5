#!/bin/sh
# test_install.sh - the example compiles and runs with nothing but what `meson install` puts somewhere;
# $1: the example's source, $2: the build directory, the rest: the command meson
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/common.sh"
example=$1
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

cc -std=c11 -Wall -Wextra -Wpedantic -Werror "$example" -o "$scratch/example" $flags $libraries ||
    fail "the example does not compile"
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
export LD_LIBRARY_PATH="$directory"
out=$("$scratch/example" "$log" 1 2>&1) || fail "the example: $out"
contains "$out" "workers: "
contains "$out" "cause: "
contains "$out" "fix: "
contains "$out" "gain: "
lacks "$out" "cause: unclear"
out=$("$scratch/example" "$scratch/gone" 2>&1) && fail "a run that is not there was judged"
contains "$out" "plan_and_judge: "
contains "$out" "$scratch/gone"
finish
