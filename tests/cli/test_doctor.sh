#!/bin/sh
# test_doctor.sh - `millhead doctor` and `millhead export`; $1 is the built command
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/common.sh"

# --- a log of Earthmover's: glued lines, an empty one, and a cut end ---

log=$scratch/demo.log
cat >"$log" <<'LOG'
{"event": "run start", "time": 100.0, "locals": {"num_workers": 0, "batch_size": 1}}
{"event": "setup start", "time": 100.5}
{"event": "setup end", "time": 103.0, "duration": 2.5}
{"event": "epoch start", "epoch": 0, "time": 103.0}
{"event": "training start", "batch": 0, "time": 105.0}{"event": "training end", "batch": 0, "time": 106.0, "duration": 1.0}

{"event": "training start", "batch": 1, "time": 108.0}
{"event": "training end", "batch": 1, "time": 109.0, "duration": 1.0}
{"event": "training start", "batch": 2, "time": 113.0}
{"event": "training end", "batch": 2, "time": 114.0, "dura
LOG
good doctor "$log" --json
for part in '"cause": "' '"waits": 2, ' '"bad_lines": 3, ' '"wait_s": {"mean": 3.0, ' '"max": 4.0' \
    '"setup_s": 2.5, ' '"vantage": "log"' '"stages": {"train": ' '"predicted_gain": ' '"fix": "' \
    '"evidence": ["' '"warnings": ["' '"others": [' '"device_wait_share": ' '"idle_device_s": '; do
    contains "$out" "$part"
done
[ "$(wc -l <"$scratch/out")" -eq 1 ] || fail "not one line of JSON"
good doctor "$log"
contains "$out" "where the time goes"
contains "$out" "what to do"
contains "$out" "the log has no end"
lacks "$out" "$(printf '\033')"
widest=$(awk '{ if (length($0) > most) most = length($0) } END { print most }' "$scratch/out")
[ "$widest" -le 80 ] || fail "a line of $widest characters"

# --- a run of our own, with two ranks ---

run=$scratch/run
mkdir "$run"
header() {
    echo '{"event":"header","t":1000,"schema":"millhead-events","version":'"$1"',"rank":'"$2"',"host":"h'"$2"'"}'
}
# batches RANK WAIT_MS STEP_MS: 40 batches of one worker
batches() {
    header 1 "$1"
    echo '{"event":"loader","t":1000,"loader":0,"kind":"torch","workers":1,"prefetch":2,"batch_size":4,"cpus":4}'
    at=0
    while [ "$at" -lt 40 ]; do
        t=$((at * 100 + 100))
        echo '{"event":"fetch","t":'"$t"'000000,"ns":'"$2"'000000,"cpu":1000000,"delay":0,"loader":0,"epoch":0,"worker":0,"nth":'"$at"',"samples":4}'
        echo '{"event":"wait","t":'"$t"'000001,"ns":'"$2"'000000,"loader":0,"epoch":0,"batch":'"$at"',"worker":0,"nth":'"$at"',"samples":4}'
        echo '{"event":"step","t":'"$t"'100000,"ns":'"$3"'000000,"loader":0,"epoch":0,"batch":'"$at"'}'
        at=$((at + 1))
    done
    echo '{"event":"usage","t":500000000,"pid":7,"role":"main","cpu":1000,"pss":5000000}'
    echo '{"event":"usage","t":1500000000,"pid":7,"role":"main","cpu":500001000,"pss":5000000}'
    echo '{"event":"end","t":4200000000,"ns":4199999000}'
}
batches 0 10 90 >"$run/events.jsonl"
good doctor "$run" --json
contains "$out" '"waits": 39, "wait_s": {"mean": 0.01, '
contains "$out" '"vantage": "inside"'
contains "$out" '"bad_lines": 0, '
contains "$out" '"warnings": ['
one=$out
good doctor "$run/events.jsonl" --json
[ "$out" = "$one" ] || fail "the file alone gives something else: $out"
echo '{"tiers": [{"name": "disk sequential", "mb_per_s": 140, "latency_us": 7000}, {"name": "disk random", "mb_per_s": 9, "latency_us": 450}]}' >"$scratch/probe.json"
batches 0 60 40 | sed 's/"worker":0,"nth":\([0-9]*\),"samples":4}/"worker":0,"nth":\1,"samples":4,"read":600000}/' >"$scratch/slow.jsonl"
good doctor "$scratch/slow.jsonl" --json
lacks "$out" "the probe measured"
good doctor "$scratch/slow.jsonl" --probe "$scratch/probe.json" --json
contains "$out" "the run read 6 MB/s from storage; the probe measured 140 MB/s for one sequential reader, 9 MB/s in small random reads (450 us each)"
bad 1 doctor "$run" --probe "$scratch/gone"
contains "$err" "make it with: millhead probe"
bad 1 doctor "$run" --probe "$log"
bad 2 doctor --checklist --probe "$scratch/probe.json"
batches 1 60 40 >"$run/events.rank1.jsonl"
good doctor "$run" --json
[ "$out" != "$one" ] || fail "the second rank changed nothing"
contains "$out" straggler

# --- bad input: one line each, that names the file ---

bad 1 doctor "$scratch/gone"
contains "$err" "$scratch/gone"
mkdir "$scratch/hollow"
bad 1 doctor "$scratch/hollow"
contains "$err" "no events.jsonl in the directory $scratch/hollow"
: >"$scratch/hollow/events.jsonl"
bad 1 doctor "$scratch/hollow"
contains "$err" "$scratch/hollow is empty"
header 1 0 >"$scratch/hollow/events.jsonl"
bad 1 doctor "$scratch/hollow"
contains "$err" "has no batch"
header 2 0 >"$scratch/hollow/events.jsonl"
bad 1 doctor "$scratch/hollow"
contains "$err" "$scratch/hollow/events.jsonl: line 1: events of version 2"
head -c 3000 /dev/urandom >"$scratch/noise"
bad 1 doctor "$scratch/noise"
contains "$err" "holds no event"
# a pipe that nobody writes to, and a device without an end; a pipe somebody writes to is a log
mkfifo "$scratch/pipe"
for path in "$scratch/pipe" /dev/zero; do
    timeout 10 "$millhead" doctor "$path" >"$scratch/out" 2>"$scratch/err"
    [ $? -eq 1 ] || fail "doctor $path was not refused at once"
    contains "$(cat "$scratch/err")" "$path is"
done
good doctor "$log" --json
plain=$out
(sleep 1 && cat "$log") | "$millhead" doctor /dev/stdin --json >"$scratch/out" ||
    fail "a pipe was refused"
[ "$(cat "$scratch/out")" = "$plain" ] || fail "a pipe gives something else"
timeout 10 "$millhead" doctor "$run" --probe "$scratch/pipe" >"$scratch/out" 2>"$scratch/err"
[ $? -eq 1 ] || fail "a probe from a pipe nobody writes to was not refused at once"
if [ "$(id -u)" -ne 0 ]; then
    cp "$log" "$scratch/secret"
    chmod 000 "$scratch/secret"
    bad 1 doctor "$scratch/secret"
    contains "$err" "Permission denied"
fi

# --- usage ---

good doctor --help
contains "$out" "--checklist"
bad 2 doctor
bad 2 doctor a b
bad 2 doctor torchrum --nproc-per-node 2 train.py
contains "$err" "no program or run 'torchrum' (doctor): check the name"
bad 1 doctor gone --json
contains "$err" "cannot open gone"
bad 2 doctor "$log" --checklist
bad 2 doctor --pid 1 --checklist
bad 2 doctor --wrong
for pid in 0 -1 x '' 1x 99999999999; do
    bad 2 doctor --pid "$pid"
done
bad 2 doctor --pid 1 --seconds 0

# a command is the business of Python
cat >"$scratch/snake" <<'SCRIPT'
#!/bin/sh
shift 2
printf ' <%s>' "$@"
SCRIPT
chmod +x "$scratch/snake"
out=$(MILLHEAD_PYTHON=$scratch/snake "$millhead" doctor --json -- train.py -x)
[ "$out" = " <doctor> <--json> <--> <train.py> <-x>" ] || fail "the command: $out"
for program in train.py sh "$scratch/snake"; do
    out=$(MILLHEAD_PYTHON=$scratch/snake "$millhead" doctor -o kept "$program" --json)
    [ "$out" = " <doctor> <-o> <kept> <$program> <--json>" ] || fail "the program $program: $out"
done
# what was recorded is no program, wherever it lies and whatever it may be called
cp "$log" "$scratch/recorded" && chmod +x "$scratch/recorded"
good doctor "$scratch/recorded"
bad 1 doctor no-such-program-or-run
contains "$err" "or a program to run"

# a directory of `millhead bench` lists its runs
mkdir -p "$scratch/bench/w10" "$scratch/bench/w2" "$scratch/bench/empty"
echo '{}' >"$scratch/bench/bench.json"
cp "$run/events.jsonl" "$scratch/bench/w10/"
cp "$run/events.jsonl" "$scratch/bench/w2/"
good doctor "$scratch/bench" --json
[ "$out" = '{"runs": ["w2", "w10"]}' ] || fail "the runs: $out"
good doctor "$scratch/bench"
contains "$out" "millhead doctor $scratch/bench/w2"

# --- export ---

good export "$run" --trace "$scratch/trace.json" --csv "$scratch/table.csv"
contains "$out" "$scratch/trace.json: "
[ "$(head -c 1 "$scratch/trace.json")" = "[" ] || fail "the trace is no array"
[ "$(tail -n 1 "$scratch/trace.json")" = "]" ] || fail "the trace does not end"
contains "$(cat "$scratch/trace.json")" '"rank 1 on h1"'
[ "$(wc -l <"$scratch/table.csv")" -eq 3 ] || fail "the table: $(cat "$scratch/table.csv")"
contains "$(cat "$scratch/table.csv")" "all,40,160,0.010000000,0.390000000,3.600000000,0.010000000"
good export "$log" --trace "$scratch/trace.json"
good export "$log" --json --trace "$scratch/trace.json"
contains "$out" "{\"trace\": \"$scratch/trace.json\", \"events\": "
contains "$out" ', "csv": null}'
good export "$log" --json --csv "$scratch/table.csv"
[ "$out" = "{\"trace\": null, \"events\": null, \"csv\": \"$scratch/table.csv\"}" ] || fail "said '$out'"
good export --help
bad 2 export
bad 2 export "$run"
bad 2 export "$run" "$run" --csv x
bad 2 export --wrong
bad 1 export "$scratch/gone" --csv "$scratch/x.csv"
bad 1 export "$run" --csv "$scratch/gone/x.csv"
contains "$err" "$scratch/gone/x.csv"
bad 1 export "$run" --trace "$scratch/gone/x.json"
contains "$err" "$scratch/gone/x.json"
cp "$run/events.jsonl" "$scratch/kept.jsonl"
bad 2 export "$run" --trace "$run/events.jsonl"
bad 2 export "$run/events.jsonl" --csv "$run/../run/events.jsonl"
cmp -s "$run/events.jsonl" "$scratch/kept.jsonl" || fail "an export wrote over its source"
mkdir "$scratch/later"
header 2 0 >"$scratch/later/events.jsonl"
bad 1 export "$scratch/later" --trace "$scratch/half.json"
[ ! -e "$scratch/half.json" ] || fail "half a trace is left"
ln -s half.json "$scratch/link.json"
bad 1 export "$scratch/later" --trace "$scratch/link.json"
[ -L "$scratch/link.json" ] || fail "a link of the user's is gone"
if [ -w /dev/full ]; then
    bad 1 export "$run" --trace /dev/full
    contains "$err" "No space left"
    bad 1 export "$run" --csv /dev/full
fi

finish
