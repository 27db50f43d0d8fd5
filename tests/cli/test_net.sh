#!/bin/sh
# test_net.sh - where the command finds libmillhead-net.so, and what it says where it does not;
# $1: the build directory, $2: 1 if it was built with libcurl, the rest: the command meson
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/common.sh"
build=$1
if [ "$2" -ne 1 ]; then
    millhead=$build/cli/millhead
    bad 1 probe http://127.0.0.1:1/file
    contains "$err" "this build reads no addresses: it was made without libcurl"
    [ "$failures" -eq 0 ] || exit 1
    echo "the rest needs a build with libcurl" && exit 77
fi
shift 2

"$@" install -C "$build" --no-rebuild --quiet --tags runtime --destdir "$scratch/root" >"$scratch/out" 2>&1 ||
    fail "meson install: $(cat "$scratch/out")"
unset http_proxy LD_LIBRARY_PATH
installed=$(find "$scratch/root" -name libmillhead-net.so)
millhead=$(find "$scratch/root" -name millhead -type f -perm -u+x)
[ -f "$installed" ] && [ -x "$millhead" ] || fail "the command and its library are not installed"
url=http://user:password@127.0.0.1:1/file

# reads WHERE: the library is found, and nobody answers
reads() {
    bad 1 probe "$url"
    contains "$err" "cannot read http://127.0.0.1:1/file"
    [ "$failures" -eq 0 ] || echo "with the library $1"
}
reads "in libdir"

# beside the shared library, for a program that lies elsewhere
library=$(find "$scratch/root" -name 'libmillhead.so.0')
if [ -n "$library" ]; then
    cat >"$scratch/probe.c" <<'C'
#include <millhead/millhead.h>
#include <stdio.h>
int main(void)
{
    mh_probe_options options;
    mh_probe probe;
    mh_error err;
    mh_probe_options_init(&options);
    options.path = "http://127.0.0.1:1/file";
    mh_status status = mh_probe_run(&probe, &options, &err);
    puts(err.message);
    return status != MH_ERR_IO;
}
C
    cc -I "$(dirname "$0")/../../include" "$scratch/probe.c" "$library" -Wl,-rpath,"${library%/*}" -o "$scratch/probe" ||
        fail "a program with the shared library does not compile"
    out=$("$scratch/probe") || fail "a program with the shared library: $out"
    contains "$out" "cannot read http://127.0.0.1:1/file"
fi

kept=$scratch/kept.so
mv "$installed" "$kept"
bad 1 probe "$url"
contains "$err" "libmillhead-net.so"
contains "$err" "install millhead again"
lacks "$err" password

# beside the command, wherever that is
odd="$scratch/an [odd] place/bin"
mkdir -p "$odd"
mv "$millhead" "$odd/millhead"
millhead=$odd/millhead
cp "$kept" "$odd/libmillhead-net.so"
reads "beside the command"
PATH="$odd:$PATH"
millhead=millhead
reads "beside a command found by PATH"
rm "$odd/libmillhead-net.so"
# where pip puts the package
for place in lib/python3.99/site-packages/millhead lib/python3.99/dist-packages/millhead millhead; do
    mkdir -p "$odd/../$place"
    cp "$kept" "$odd/../$place/libmillhead-net.so"
    reads "in $place"
    rm "$odd/../$place/libmillhead-net.so"
done
export LD_LIBRARY_PATH="$scratch/somewhere"
mkdir "$LD_LIBRARY_PATH"
cp "$kept" "$LD_LIBRARY_PATH/libmillhead-net.so"
reads "in the library path"

# libcurl is not there: what is found first is no library
: >"$LD_LIBRARY_PATH/libcurl.so.4"
bad 1 probe "$url"
contains "$err" "install the package libcurl4"
rm "$LD_LIBRARY_PATH/libcurl.so.4"

# another version
echo 'const struct { unsigned version; } mh_net_curl = {99};' >"$scratch/other.c"
cc -shared -fPIC "$scratch/other.c" -o "$LD_LIBRARY_PATH/libmillhead-net.so" || fail "cc"
bad 1 probe "$url"
contains "$err" "libmillhead-net.so is of another version"
finish
