#!/bin/sh
# test_run.sh - which Python `millhead run` becomes, and with what; $1 is the built command
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/common.sh"

# python PATH NAME: a stand-in that says its name and its arguments, and exits with 7
python() {
    mkdir -p "${1%/*}"
    cat >"$1" <<SCRIPT
#!/bin/sh
printf '%s' $2
[ "\$1" = -c ] && shift 2
printf ' <%s>' "\$@"
exit 7
SCRIPT
    chmod +x "$1"
}

# becomes NAME COMMAND...: the stand-in gets the verb and the rest as given, and its exit code counts
becomes() {
    name=$1
    shift
    out=$("$@" run -m 'a b' '' --json 2>"$scratch/err")
    [ $? -eq 7 ] || fail "$*: not the exit code of $name: $(cat "$scratch/err")"
    [ "$out" = "$name <run> <-m> <a b> <> <--json>" ] || fail "$*: got '$out', expected $name"
}

mkdir "$scratch/bin"
cp "$1" "$scratch/bin/millhead"
python "$scratch/path/python3" of-path
python "$scratch/given/snake" given
becomes of-path env PATH="$scratch/path:$PATH" "$scratch/bin/millhead"
becomes of-path env PATH="$scratch/path:$PATH" MILLHEAD_PYTHON= "$scratch/bin/millhead"
python "$scratch/bin/python" beside
becomes beside env PATH="$scratch/path:$PATH" "$scratch/bin/millhead"
python "$scratch/bin/python3" beside-3
becomes beside-3 env PATH="$scratch/path:$PATH" "$scratch/bin/millhead"
ln -s "$scratch/bin/millhead" "$scratch/path/millhead"
becomes beside-3 "$scratch/path/millhead"
becomes given env MILLHEAD_PYTHON="$scratch/given/snake" "$scratch/bin/millhead"
becomes given env PATH="$scratch/given:$PATH" MILLHEAD_PYTHON=snake "$scratch/bin/millhead"

# bench goes the same way
out=$("$scratch/bin/millhead" bench mine:dataset --json)
[ "$out" = "beside-3 <bench> <mine:dataset> <--json>" ] || fail "bench: got '$out'"

for wrong in "$scratch/gone" "$scratch/given" ; do
    MILLHEAD_PYTHON=$wrong "$scratch/bin/millhead" run x.py >"$scratch/out" 2>"$scratch/err"
    [ $? -eq 2 ] || fail "MILLHEAD_PYTHON=$wrong: exit code"
    [ -s "$scratch/out" ] && fail "MILLHEAD_PYTHON=$wrong: printed $(cat "$scratch/out")"
    [ "$(wc -l <"$scratch/err")" -eq 1 ] || fail "MILLHEAD_PYTHON=$wrong: not one line"
    case $(cat "$scratch/err") in
    "millhead: cannot start Python '$wrong': "*" (run): "*MILLHEAD_PYTHON*) ;;
    *) fail "MILLHEAD_PYTHON=$wrong: $(cat "$scratch/err")" ;;
    esac
done

finish
