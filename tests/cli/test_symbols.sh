#!/bin/sh
# test_symbols.sh - libmillhead.so exports what its headers declare; $1: the library, $2: include/,
# $3: libmillhead-net.so, if there is one
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/common.sh"
library=$1
headers=$2

nm -D --defined-only -P "$library" | awk '{ print $1 }' | sort >"$scratch/exported"
[ -s "$scratch/exported" ] || fail "$library exports nothing"
others=$(grep -v '^mh_' "$scratch/exported")
[ -z "$others" ] || fail "exported without the prefix mh_: $others"

# Statements that declare a function, whether MH_API is written there or not; what is static inline
# is compiled into the caller, and types are no functions.
${CC:-cc} -E -P -x c -I "$headers" "$headers/millhead/millhead.h" | tr '\n' ' ' | tr ';{}' '\n\n\n' |
    grep -vE 'static inline|^ *typedef' | grep -o 'mh_[a-z0-9_]*(' | tr -d '(' | sort -u >"$scratch/declared"
[ -s "$scratch/declared" ] || fail "no declaration found in $headers"
# every header is a part of millhead.h
for header in "$headers"/millhead/*.h; do
    name=millhead/${header##*/}
    [ "$name" = millhead/millhead.h ] || grep -q "<$name>" "$headers/millhead/millhead.h" ||
        fail "millhead.h does not include $name"
done
missing=$(comm -13 "$scratch/exported" "$scratch/declared")
[ -z "$missing" ] || fail "declared and not exported: $missing"
private=$(comm -23 "$scratch/exported" "$scratch/declared")
[ -z "$private" ] || fail "exported and not declared: $private"

# of libmillhead-net.so the core asks for one
if [ -n "${3-}" ]; then
    exported=$(nm -D --defined-only -P "$3" | awk '!/^__odr_asan/ { print $1 }')
    [ "$exported" = mh_net_curl ] || fail "$3 exports: $exported"
fi
# and the core is linked to codecs, never to a network
needed=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
    grep -vE '^(libc|libm|libpthread|libdl|libasan|libubsan|libtsan|libgcc_s|libjpeg|libpng16|libz|libzstd|liblz4|libdeflate|libblosc|ld-linux.*)\.so')
[ -z "$needed" ] || fail "$library needs $needed"
finish
