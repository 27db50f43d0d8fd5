# common.sh - what the tests of the command share; sourced, with the built command as $1
# SPDX-License-Identifier: Apache-2.0
set -u
millhead=$1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
unset MILLHEAD_PYTHON NO_COLOR
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# expect CODE ARGUMENTS...: runs the command and keeps its output in $out and $err.
expect() {
    code=$1
    shift
    "$millhead" "$@" >"$scratch/out" 2>"$scratch/err"
    got=$?
    out=$(cat "$scratch/out")
    err=$(cat "$scratch/err")
    [ "$got" = "$code" ] || fail "millhead $*: exit $got, expected $code: $err"
}

# A good command says nothing on standard error.
good() {
    expect 0 "$@"
    [ -z "$err" ] || fail "millhead $*: said '$err'"
}

# bad CODE ARGUMENTS...: one line "millhead: WHAT (WHERE): TO DO" and nothing printed.
bad() {
    expect "$@"
    shift
    [ -z "$out" ] || fail "millhead $*: printed '$out'"
    [ "$(wc -l <"$scratch/err")" -eq 1 ] || fail "millhead $*: not one line: '$err'"
    case $err in
    "millhead: "*" ("*"): "*) ;;
    *) fail "millhead $*: message '$err'" ;;
    esac
}

contains() {
    case $1 in
    *"$2"*) ;;
    *) fail "'$2' is not in: $(printf %.300s "$1")" ;;
    esac
}

lacks() {
    case $1 in
    *"$2"*) fail "'$2' is in: $(printf %.300s "$1")" ;;
    esac
}

# The last line of a test.
finish() {
    [ "$failures" -eq 0 ] || exit 1
    echo "all passed"
}
