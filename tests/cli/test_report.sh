#!/bin/sh
# test_report.sh - `millhead report`; $1 is the built command
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/common.sh"

header() {
    echo '{"event":"header","t":1000,"schema":"millhead-events","version":'"$1"',"rank":0,"host":"<script>alert(1)</script>"}'
}

# batches WAIT_MS STEP_MS: 40 batches of two workers
batches() {
    header 1
    echo '{"event":"loader","t":1000,"loader":0,"kind":"torch","workers":2,"prefetch":2,"batch_size":4,"cpus":4}'
    at=0
    while [ "$at" -lt 40 ]; do
        t=$((at * 100 + 100))
        who='"worker":'$((at % 2))',"nth":'$((at / 2))
        echo '{"event":"fetch","t":'"$t"'000000,"ns":'"$1"'000000,"cpu":1000000,"delay":0,"loader":0,"epoch":0,'"$who"',"samples":4}'
        echo '{"event":"wait","t":'"$t"'000001,"ns":'"$1"'000000,"loader":0,"epoch":0,"batch":'"$at,$who"',"samples":4}'
        echo '{"event":"step","t":'"$((t + $1))"'000001,"ns":'"$2"'000000,"loader":0,"epoch":0,"batch":'"$at"'}'
        at=$((at + 1))
    done
    echo '{"event":"usage","t":500000000,"pid":7,"role":"main","cpu":1000,"pss":5000000}'
    echo '{"event":"usage","t":1500000000,"pid":7,"role":"main","cpu":500001000,"pss":5000000}'
    echo '{"event":"end","t":4200000000,"ns":4199999000}'
}

# --- a run: the page, what it says about itself, pictures ---

run=$scratch/run
mkdir "$run"
batches 30 70 >"$run/events.jsonl"
good report "$run" -o "$scratch/report.html" --json
for part in '"output": "' '"bytes": ' '"runs": [{"name": "run", ' '"events": 125, ' '"workers": 2, ' \
    '"cause": "' '"device_wait_share": 0.3' '"exact": true}]' '"pictures": []}'; do
    contains "$out" "$part"
done
[ "$(wc -l <"$scratch/out")" -eq 1 ] || fail "not one line of JSON"
page=$(cat "$scratch/report.html")
contains "$page" "Content-Security-Policy\" content=\"default-src 'none'"
contains "$page" '"kind": "train"'
lacks "$page" 'src="'
lacks "$page" '@'DATA'@'
case $out in
*'"bytes": '"$(wc -c <"$scratch/report.html"), "*) ;;
*) fail "the size: $out" ;;
esac
good report "$run" --output "$scratch/again.html"
cmp -s "$scratch/report.html" "$scratch/again.html" || fail "the same run gives another page"
good report "$run/events.jsonl" --svg "$scratch/svg"
for picture in gantt timeline waits usage; do
    contains "$out" "$scratch/svg/$picture.svg"
    contains "$(cat "$scratch/svg/$picture.svg")" "</svg>"
done
for colour in 6D0EDB C396F9 FF6554; do
    contains "$(cat "$scratch/svg/gantt.svg")" "$colour"
done

contains "$(cat "$scratch/svg/waits.svg")" '>20 ms<' # a narrow range has marks too
lacks "$(cat "$scratch/svg/usage.svg")" '>workers<'   # of which nothing is known here
mkdir "$scratch/single"
grep -v '"\(batch\|nth\)":[1-9]' "$run/events.jsonl" >"$scratch/single/events.jsonl"
good report "$scratch/single" --svg "$scratch/single"
for picture in gantt waits; do
    contains "$(cat "$scratch/single/$picture.svg")" '>the loop asked for one batch only<'
done
lacks "$(cat "$scratch/single/gantt.svg")" 'average wait'

# --- several runs are compared; equal names get the directory above, the same run a number ---

mkdir -p "$scratch/other/run"
batches 5 95 >"$scratch/other/run/events.jsonl"
good report "$run" "$scratch/other/run" -o "$scratch/two.html" --svg "$scratch/svgs" --json
contains "$out" '"name": "other/run"'
contains "$out" "compared.svg"
contains "$(cat "$scratch/svgs/compared.svg")" ">other/run<"
good report "$run" "$run" -o "$scratch/two.html" --json
contains "$out" '"name": "run (2)"'
mkdir -p "$scratch/before/run" "$scratch/after/run" "$scratch/a-name-too-long-for-the-picture"
for at in before/run after/run a-name-too-long-for-the-picture; do
    cp "$run/events.jsonl" "$scratch/$at"
done
good report "$scratch/before/run" "$scratch/after/run" "$scratch/a-name-too-long-for-the-picture" \
    -o "$scratch/three.html" --svg "$scratch/three" --json
contains "$out" '"name": "before/run"'
contains "$out" '"name": "after/run"'
contains "$(cat "$scratch/three/compared.svg")" ">before/run<"
contains "$(cat "$scratch/three/compared.svg")" ">a-name-too-long-for-t…<"
# No sample was long enough for an event: how they differ is not known.
contains "$(cat "$scratch/three.html")" \
    '"name": "sample", "count": 160, "total_s": 1.2, "mean_s": 0.0075, "p50_s": null, "p99_s": null, "max_s": null'

# --- a name that is no text in any encoding ---

odd=$scratch/$(printf 'n\377m\303\251 & <x>')
mkdir "$odd"
cp "$run/events.jsonl" "$odd"
good report "$odd" --svg "$scratch/odd"
contains "$(cat "$scratch/odd/timeline.svg")" ">n?mé &amp; &lt;x&gt;: device idle"

# --- what bench writes ---

mkdir -p "$scratch/bench"
cp -r "$run" "$scratch/bench/first"
cat >"$scratch/bench/bench.json" <<'BENCH'
{"configs": [{"name": "first", "total_s": 4.0, "total_std_s": 0.1, "samples_per_s": {"mean": 40.0, "std": 1.5},
  "wait_s": {"mean": 0.03, "p99": 0.03}, "cause": "cpu-bound", "log": "elsewhere/first"},
 {"name": "broken", "samples_per_s": null, "log": null, "error": "it failed"}],
 "recommended": {"name": "first", "reason": "the only <one>"}}
BENCH
good report "$scratch/bench" -o "$scratch/bench.html"
contains "$(cat "$scratch/bench.html")" '"samples_per_s": 40.0, "samples_per_s_std": 1.5'
contains "$(cat "$scratch/bench.html")" 'the only \u003cone\u003e'
# The benchmark's names stay, whatever else is shown: its recommendation speaks of them.
mkdir -p "$scratch/elsewhere"
cp -r "$run" "$scratch/elsewhere/first"
good report "$scratch/bench" "$scratch/elsewhere/first" -o "$scratch/both.html" --json
contains "$out" '"name": "first"'
contains "$out" '"name": "elsewhere/first"'
echo '{"configs": 3}' >"$scratch/bench/bench.json"
bad 1 report "$scratch/bench" -o "$scratch/bench.html"
contains "$err" "bench.json"

# --- markup in names stays text ---

evil="$scratch/<script>alert(1)<"
mkdir -p "$evil"
batches 30 70 >"$evil/events.jsonl"
printf '{"schema": "millhead-run", "version": 1, "argv": ["</script><script>alert(2)</script>"], "configuration": {"a<b": "\\u2028&<!--"}}' >"$evil/run.json"
good report "$evil" -o "$scratch/evil.html" --svg "$scratch/evilsvg"
page=$(cat "$scratch/evil.html")
lacks "$page" '<script>alert'
lacks "$page" '<!--'
contains "$page" '\u003cscript\u003ealert(1)\u003c'
contains "$page" '\u003c/script\u003e\u003cscript\u003ealert(2)'
[ "$(grep -o '<script' "$scratch/evil.html" | wc -l)" -eq 2 ] || fail "another script got in"
lacks "$(cat "$scratch/evilsvg/timeline.svg")" '<script'
echo '{"configuration": ' >"$evil/run.json"
good report "$evil" -o "$scratch/evil.html"

# --- a log of Earthmover's: a row per worker, whatever processes it names ---

{
    echo '{"event": "run start", "time": 100.0, "locals": {"num_workers": 2, "batch_size": 1, "shuffle": null, "source": "gcs"}}'
    echo '{"event": "setup start", "time": 100.5}'
    echo '{"event": "setup end", "time": 103.0, "duration": 2.5}'
    for epoch in 0 1; do
        echo '{"event": "epoch start", "epoch": '$epoch', "time": '$((103 + epoch * 20))'.0}'
        for batch in 0 1 2 3; do
            t=$((105 + epoch * 20 + batch * 4))
            echo '{"event": "get-batch end", "time": '$t'.0, "idx": '$batch', "pid": '$((500 + epoch * 2 + batch % 2))', "duration": 1.5}'
            echo '{"event": "training start", "batch": '$batch', "time": '$t'.5}{"event": "training end", "batch": '$batch', "time": '$((t + 2))'.0, "duration": 1.5}'
        done
        echo '{"event": "epoch end", "epoch": '$epoch', "time": '$((122 + epoch * 20))'.0, "duration": 19.0}'
    done
    echo '{"event": "run end", "time": 142.0, "duration": 42.0}'
} >"$scratch/demo.log"
good report "$scratch/demo.log" -o "$scratch/demo.html" --svg "$scratch/demosvg" --json
contains "$out" '"workers": 2, '
contains "$(cat "$scratch/demo.html")" '"num_workers": 2'
contains "$(cat "$scratch/demosvg/gantt.svg")" 'source: gcs'
lacks "$(cat "$scratch/demosvg/gantt.svg")" 'shuffle'

# --- bad input: one line each, and no page ---

out_file=$scratch/none.html
mkdir "$scratch/hollow"
bad 1 report "$scratch/gone" -o "$out_file"
contains "$err" "$scratch/gone"
bad 1 report "$scratch/hollow" -o "$out_file"
contains "$err" "no events.jsonl"
: >"$scratch/hollow/events.jsonl"
bad 1 report "$scratch/hollow" -o "$out_file"
contains "$err" "is empty"
header 2 >"$scratch/hollow/events.jsonl"
bad 1 report "$scratch/hollow" -o "$out_file"
contains "$err" "events of version 2"
bad 1 report "$run" "$scratch/hollow" -o "$out_file"
[ ! -e "$out_file" ] || fail "a page was written of nothing"
head -c 9000 "$run/events.jsonl" >"$scratch/hollow/events.jsonl"
good report "$scratch/hollow" -o "$out_file" # cut: read as far as it goes, and said so
contains "$(cat "$out_file")" "the log has no end"
bad 1 report "$run" -o "$scratch/gone/report.html"
contains "$err" "$scratch/gone/report.html"
bad 1 report "$run" --svg "$scratch/gone/svg"
bad 1 report "$run" --svg "$run/events.jsonl"
if [ -w /dev/full ]; then
    bad 1 report "$run" -o /dev/full
    contains "$err" "No space left"
fi
bad 2 report
bad 2 report "$run"
bad 2 report "$run" -o
bad 2 report --wrong
good report --help
contains "$out" "--svg DIR"

# --- PNG: real where the program is, one line where it is not ---

cat >"$scratch/bare" <<SCRIPT
#!/bin/sh
PATH=$scratch/hollow exec "$millhead" "\$@"
SCRIPT
chmod +x "$scratch/bare"
built=$millhead
millhead=$scratch/bare
bad 1 report "$run" --png "$scratch/png"
millhead=$built
contains "$err" "librsvg2-bin"
if command -v rsvg-convert >/dev/null; then
    good report "$run" --png "$scratch/png"
    contains "$(head -c 4 "$scratch/png/gantt.png" | tr -d '\211')" "PNG"
    [ ! -e "$scratch/png/gantt.svg" ] || fail "SVG files were left among the PNG files"
fi

# --- a report does not go where it comes from ---

cp -r "$run" "$scratch/kept"
mkdir -p "$scratch/bench/kept" && cp "$run/events.jsonl" "$scratch/bench/kept/"
for file in kept/events.jsonl bench/kept/events.jsonl; do
    bad 2 report "$scratch/${file%%/*}" -o "$scratch/$file"
    contains "$err" "would be written over"
done
bad 2 report "$scratch/kept/events.jsonl" -o "$scratch/kept/events.jsonl"
cmp "$run/events.jsonl" "$scratch/kept/events.jsonl" || fail "a run was written over"
good report "$scratch/kept" -o "$scratch/kept/report.html"

finish
