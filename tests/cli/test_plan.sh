#!/bin/sh
# test_plan.sh - the command's own behaviour and `millhead plan`; $1 is the built command
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/common.sh"

good --version
[ "$out" = "millhead 0.1.0" ] || fail "version is '$out'"
good --help
contains "$out" "plan"
good plan --help
contains "$out" "--ranks"
good plan cpus --help
good plan -h

# cpus gpus ranks | reserved workers_per_gpu total; ranks 0: not given
while read -r cpus gpus ranks shown reserved each total; do
    set -- plan cpus --cpus "$cpus" --gpus "$gpus" --json
    [ "$ranks" = 0 ] || set -- "$@" --ranks "$ranks"
    good "$@"
    want="{\"cpus\": $cpus, \"gpus\": $gpus, \"ranks\": $shown, \"reserved\": $reserved, "
    want="$want\"workers_per_gpu\": $each, \"total\": $total}"
    [ "$out" = "$want" ] || fail "$*: $out, expected $want"
done <<'TABLE'
20 1 0 1 2 18 18
60 3 0 3 6 18 54
160 8 0 8 16 18 144
8 0 0 1 2 6 6
1 1 0 1 1 1 1
2 4 0 4 4 1 4
20 1 2 2 4 16 16
TABLE

good plan cpus --cpus 160 --gpus 8
contains "$out" "each of the 8 training processes num_workers=18"
good plan --cpus=20 --gpus=1 cpus
contains "$out" "the training process num_workers=18"
lacks "$out" "will wait"
good plan cpus --cpus 4 --gpus 3
contains "$out" "That is 6 processes for 4 CPUs: some will wait for one."
good plan cpus
good plan cpus --json
contains "$out" '"workers_per_gpu": '

# chunk min_chunks max_chunks min_bytes max_bytes of a 64x64 image with one byte a pixel
want='{"sample": "64x64", "itemsize": 1, "sample_bytes": 4096, "rows": ['
between=
while read -r chunk min max least most; do
    want="$want$between{\"chunk\": \"${chunk}x$chunk\", \"min_chunks\": $min, \"max_chunks\": $max, "
    want="$want\"min_bytes\": $least, \"max_bytes\": $most}"
    between=', '
done <<'TABLE'
8 64 81 4096 5184
16 16 25 4096 6400
32 4 9 4096 9216
64 1 4 4096 16384
128 1 4 16384 65536
256 1 4 65536 262144
512 1 4 262144 1048576
1024 1 4 1048576 4194304
TABLE
good plan chunks --sample 64x64 --itemsize 1 --json
[ "$out" = "$want]}" ] || fail "plan chunks: $out, expected $want]}"
good plan chunks --sample 64x64
contains "$out" "1048576      4194304"
good plan --sample 24x3x128 chunks --chunk 24x1x100,7 --itemsize 4 --json
contains "$out" '"sample_bytes": 36864'
contains "$out" '{"chunk": "24x1x100", "min_chunks": 6, "max_chunks": 18, "min_bytes": 57600, '
contains "$out" '"chunk": "7x7x7"'
# in many dimensions the usual sizes are too large to count, and are left out
good plan chunks --sample 4x4x4x4x4x4 --json
contains "$out" '"sample_bytes": 4096, "rows": [{"chunk": "8x8x8x8x8x8", "min_chunks": 1, "max_chunks": 64, '
contains "$out" '"chunk": "512x512x512x512x512x512"'
lacks "$out" '1024x'
good plan chunks --sample 18446744073709551615 --chunk 1 --json
contains "$out" '"sample_bytes": 18446744073709551615'
good plan chunks --help
contains "$out" "--itemsize"

bad 2 plan chunks
contains "$err" "no sample"
bad 2 plan chunks --sample 64x64 extra
bad 2 plan chunks --sample 64x64 --chunk 8x8x8
contains "$err" "has 3 dimensions, the sample has 2"
for shape in 0x64 64x x64 '' 64y64 -1 ' 64' 99999999999999999999 64xx64; do
    bad 2 plan chunks --sample "$shape"
    bad 2 plan chunks --sample 64x64 --chunk "$shape"
done
bad 2 plan chunks --sample 64x64 --chunk 8x8,
bad 2 plan chunks --sample 64x64 --itemsize 0
bad 2 plan chunks --sample 9999999999999x9999999999999
contains "$err" "does not fit 64 bits"

good synth weather "$scratch/weather" --count 8 --lat 40 --lon 80 --chunks patches
good plan chunks "$scratch/weather" --window time=4,lat=20,lon=20
contains "$out" "16 windows of time=4 lat=20 lon=20"
contains "$out" "as stored"
good plan chunks --json --window time=4 "$scratch/weather" --shuffle=false --memory 1GB
contains "$out" '"samples": 2, "shuffle": "false", "memory_bytes": 1000000000'
good plan chunks "$scratch/weather" --help
contains "$out" "decoded_per_useful"
bad 2 plan chunks "$scratch/weather" --window time=4 --shuffle=some
contains "$err" "--shuffle is 'some'"
bad 1 plan chunks "$scratch/weather" --window tiem=4
contains "$err" "time"
bad 1 plan chunks "$scratch/weather" --window time=9
contains "$err" "larger than the 8"
bad 1 plan chunks "$scratch/nowhere.zarr" --window time=4
bad 2 plan chunks synthetic:count=10
contains "$err" "has no chunks"

good plan memory --batch-bytes 1000 --workers 4 --prefetch 2 --ranks 3 --available 33000 --json
want='{"batch_bytes": 1000, "workers": 4, "prefetch": 2, "ranks": 3, "batches_per_rank": 11, '
want="$want"'"needed_bytes": 33000, "available_bytes": 33000, "machine_bytes": '
contains "$out" "$want"
contains "$out" '"fits": true, "most_prefetch": 2, "most_workers": 4}'
good plan memory --sample-bytes 500B --batch-size 2 --workers 4 --ranks 3 --available 32.9kB --json
contains "$out" '"needed_bytes": 33000, "available_bytes": 32900, '
contains "$out" '"fits": false, "most_prefetch": 1, "most_workers": 3}'
good plan memory --batch-bytes 1GiB --workers 4 --available 15GiB
contains "$out" "prefetch_factor of up to 3"
good plan memory --batch-bytes 1GiB --workers 4 --prefetch 9 --available 15GiB
contains "$out" "does not fit: give prefetch_factor=3 or less"
good plan memory --batch-bytes 1GB --workers 4 --available 6GB
contains "$out" "give num_workers=1 or less"
good plan memory --batch-bytes 1GB --workers 4 --available 2GB
contains "$out" "does not fit with workers: give num_workers=0"
good plan memory --batch-bytes 3GB --workers 4 --available 2GB
contains "$out" "not even without workers: make the batches smaller"
good plan memory --batch-bytes 1MB
contains "$out" "memory there is"
good plan memory --help
contains "$out" "--sample-bytes"

bad 2 plan memory
bad 2 plan memory --batch-size 4
bad 2 plan memory --sample-bytes 4
bad 2 plan memory --batch-bytes 4 --sample-bytes 4 --batch-size 4
bad 2 plan memory --batch-bytes 4 --batch-size 4
for size in x 4gb '' -1 ' 4' 0x10 1e300 inf 4GB4; do
    bad 2 plan memory --batch-bytes "$size"
done
bad 2 plan memory --batch-bytes 0
bad 2 plan memory --batch-bytes 4 --available 0
contains "$err" "--available is '0'"
bad 2 plan memory --batch-bytes 4 --prefetch 0
bad 2 plan memory --batch-bytes 1000TB --ranks 1000000 --workers 1
contains "$err" "do not fit 64 bits"

good plan threads --cpus 20 --gpus 1
contains "$out" "a pool of 4 to 8 threads"
contains "$out" "a cluster of 1 to 2 workers with 4 threads"
good plan threads --cpus 20 --gpus 8
contains "$out" "a cluster of at most 1 worker with 2 threads for each"
contains "$out" "one cluster for all of them, of 3 workers with 4 threads"
good plan threads --cpus 20 --gpus 8 --mode threads --threads 4
contains "$out" "8 processes x 4 threads = 32 threads, more than CPUs"
good plan threads --cpus 20 --gpus 1 --workers 8 --threads 4 --mode threads
contains "$out" "8 loader workers x 4 threads = 32 threads, more than CPUs"
contains "$out" "warning: threads: 32 threads for 20 CPUs, as loader workers and streaming"
contains "$out" "num_workers=4 leaves"
good plan threads --cpus 20 --ranks 1 --workers 8 --threads 4 --json
contains "$out" '{"cpus": 20, "ranks": 1, "workers": 8, "reserved": 2, "modes": [{"mode": "single'
want='{"mode": "threads", "shared": false, "threads": 4, "cluster_workers": 0, "loaders": 8, '
want="$want"'"streaming": 32, "total": 32, "crowded": true, "nested": true, "most_workers": 4, '
contains "$out" "$want"
want='"advice": {"threads_least": 4, "threads_most": 8, "cluster_workers": 2, '
contains "$out" "$want"
good plan threads --mode cluster --cpus 10 --ranks 1 --workers 8 --cluster-workers 5 --threads 1 \
    --memory-limit 4GB --json
contains "$out" '"total": 13, "crowded": true'
contains "$out" '"memory_limit_bytes": 4000000000, "memory_limits_sum_bytes": 20000000000'
good plan threads --mode cluster --ranks 4 --cluster-workers 2 --memory-limit none --json
contains "$out" '"memory_limit_bytes": null'
good plan threads --mode cluster --ranks 4 --cluster-workers 2 --memory-limit 1TB
contains "$out" "warning: the limits of all workers of clusters are 8.0 TB, there is "
good plan threads --mode cluster --ranks 4 --shared --memory-limit 0.5
good plan threads --mode cluster --cluster-workers 1 --memory-limit 1.0
contains "$out" "B for each worker of a cluster"
lacks "$out" "1 B for each"
good plan threads
good plan threads --help

bad 2 plan threads --mode processes
contains "$err" "known: single-threaded, threads, cluster"
bad 2 plan threads --threads 0
bad 2 plan threads --mode cluster --memory-limit lots
for limit in 1.5 2 100 999kB; do # less than any process takes: a share above 1, or no unit
    bad 2 plan threads --mode cluster --memory-limit "$limit"
    contains "$err" "--memory-limit is '$limit'"
    contains "$err" "a share up to 1"
done
good plan threads --mode cluster --cluster-workers 1 --memory-limit 1.0 --json
whole=$(printf '%s' "$out" | sed 's/.*"memory_limit_bytes": \([0-9]*\).*/\1/')
good plan threads --mode cluster --cluster-workers 1 --memory-limit 1 --json
lacks "$out" '"memory_limit_bytes": 1,' # as for Dask, all there is
test "${#whole}" -ge 7 || fail "all memory there is has $whole bytes"
bad 2 plan threads extra

# A run of 100 batches that take 40 ms each, blocked, in a loop with steps of 10 ms and one worker
{
    echo '{"event":"header","t":0,"schema":"millhead-events","version":1,"unix":0.0,"pid":1,"rank":0,"world":1}'
    echo '{"event":"loader","t":0,"loader":0,"kind":"torch","workers":1,"prefetch":2,"batch_size":4,"cpus":8}'
    n=0
    while [ $n -lt 100 ]; do
        at="\"loader\":0,\"epoch\":0,\"worker\":0,\"nth\":$n,\"samples\":4"
        fetched=$((40000000 * (n + 1)))
        asked=$((n ? 40000000 * n + 10000000 : 0))
        echo "{\"event\":\"fetch\",\"t\":$((40000000 * n)),\"ns\":40000000,\"cpu\":0,\"delay\":0,\"pid\":2,\"read\":1000,$at}"
        echo "{\"event\":\"collate\",\"t\":$fetched,\"ns\":0,\"cpu\":0,\"delay\":0,$at}"
        echo "{\"event\":\"wait\",\"t\":$asked,\"ns\":$((fetched - asked)),\"cpu\":0,\"delay\":0,\"batch\":$n,$at}"
        echo "{\"event\":\"step\",\"t\":$fetched,\"ns\":10000000,\"cpu\":0,\"delay\":0,\"loader\":0,\"epoch\":0,\"batch\":$n}"
        n=$((n + 1))
    done
} >"$scratch/events.jsonl"
good plan whatif "$scratch/events.jsonl" --json
contains "$out" '{"measured": {"gpus": 1, "workers": 1, "prefetch": 2, "batch_size": 4, "step_s": 0.01, '
contains "$out" '"needed": {"gpus": 1, "workers": 4, "prefetch": 2, '
contains "$out" '"memory_bytes": null'
contains "$out" '"enough": true, "cpus": 8, "others": 0, "making_cpu_s": 0, "making_blocked_s": 0.04, '
good plan --step 0.005 whatif "$scratch/events.jsonl" --gpus 2 --workers 3 --batch-bytes 1MB
contains "$out" "num_workers=8, prefetch_factor=2"
contains "$out" "18.0 MB" # 2 x (3 x 2 + 3) batches
contains "$out" "millhead probe"
contains "$(printf '%s' "$out" | tr -d '\n')" "Most of it is waiting"
# a run that trained nothing, a hiccup in its loop: no share of the step that is asked for
sed 's/"ns":10000000/"ns":1000/; s/\("step".*"ns":\)1000\(.*"batch":50}\)/\1100000\2/' "$scratch/events.jsonl" \
    >"$scratch/untrained.jsonl"
good plan whatif "$scratch/untrained.jsonl" --step 0.01 --workers 4 --json
contains "$out" '"needed": {"gpus": 1, "workers": 4, "prefetch": 2, '
head -c 4000000 /dev/urandom >"$scratch/shard"
good plan whatif "$scratch/events.jsonl" --storage "$scratch/shard"
contains "$out" "$scratch/shard" # and what it gives, or that it lies in memory
echo '{"tiers": [{"name": "disk sequential", "mb_per_s": 140, "latency_us": 7000}, {"name": "disk random", "mb_per_s": 9, "latency_us": 450}]}' >"$scratch/probe.json"
good plan whatif "$scratch/events.jsonl" --probe "$scratch/probe.json"
contains "$out" "gives one reader 140 MB/s in sequence, 9 in small reads anywhere; "
contains "$out" "enough where it is read in sequence"
good plan whatif "$scratch/events.jsonl" --probe "$scratch/probe.json" --json
contains "$out" '"storage_mb_per_s": 140, "storage_random_mb_per_s": 9, "storage_enough": true}'
echo '{"tiers": [{"name": "disk sequential", "mb_per_s": 0.001}]}' >"$scratch/probe.json"
good plan whatif "$scratch/events.jsonl" --probe "$scratch/probe.json"
contains "$out" "put the data on faster storage"
good plan whatif "$scratch/events.jsonl" --json
contains "$out" '"storage_mb_per_s": null, "storage_random_mb_per_s": null, "storage_enough": null}'
bad 1 plan whatif "$scratch/events.jsonl" --probe "$scratch/events.jsonl"
contains "$err" "make it with: millhead probe"
bad 2 plan whatif "$scratch/events.jsonl" --probe "$scratch/probe.json" --storage "$scratch/shard"
good plan whatif --help
contains "$out" "--step"

bad 2 plan whatif
contains "$err" "no run"
bad 2 plan whatif "$scratch/events.jsonl" extra
bad 2 plan whatif "$scratch/events.jsonl" --step 0
bad 2 plan whatif "$scratch/events.jsonl" --step fast
bad 2 plan whatif "$scratch/events.jsonl" --gpus 0
bad 2 plan whatif "$scratch/events.jsonl" --gpus 99999
expect 1 plan whatif "$scratch/events.jsonl" --storage "$scratch/nowhere"
contains "$err" "(plan whatif): give another --storage"
bad 1 plan whatif "$scratch/nowhere"
contains "$err" "(plan whatif): give the directory of a run"
echo "no event" >"$scratch/other"
bad 1 plan whatif "$scratch/other"
contains "$err" "(plan whatif): see docs/events.md"
echo '{"event":"header","t":0,"schema":"millhead-events","version":9}' >"$scratch/later"
bad 1 plan whatif "$scratch/later"
contains "$err" "(plan whatif): use the millhead that wrote it"

bad 2
contains "$err" "plan"
bad 2 harvest
contains "$err" "known verbs: bench, cache, doctor, explain, export, help, inspect"
bad 2 dcotor
contains "$err" "did you mean 'doctor'?"
bad 2 plan cpu
contains "$err" "did you mean 'cpus'?"
bad 2 plan cpus --gpu=1 --rank 3 --cpuss 2
contains "$err" "did you mean '--cpus'?"
good plan cpus --help
wanted=$out
good help plan cpus
[ "$out" = "$wanted" ] || fail "help plan cpus: $out"
good --help
wanted=$out
good help
[ "$out" = "$wanted" ] || fail "help: $out"
bad 2 help harvest
bad 2 help plan cpus more
good explain
contains "$out" "cpu-bound "
good explain cpu-bound
contains "$out" "What to do."
lacks "$out" "]("
good explain cpu-bound --json
contains "$out" '{"cause": "cpu-bound", "text": "# cpu-bound: '
bad 2 explain cpu-buond
contains "$err" "did you mean 'cpu-bound'?"
bad 2 explain cpu
contains "$err" "did you mean 'cpu-bound'?"
bad 2 --wrong
bad 2 -x
bad 2 plan
bad 2 plan chunkz
bad 2 plan cpus extra
bad 2 plan cpus --wrong
contains "$err" "'--wrong'"
bad 2 plan cpus --cpus
contains "$err" "needs a value"
bad 2 plan cpus --json=1
contains "$err" "takes no value"
for number in 0 -1 x 1.5 '' ' 4' +4 99999999999999999999 1000001; do
    bad 2 plan cpus --cpus "$number"
done
bad 2 plan cpus --gpus -1
bad 2 plan cpus --ranks 0
bad 2 "two
lines"

if [ -w /dev/full ]; then
    "$millhead" plan cpus --json >/dev/full 2>"$scratch/err"
    [ $? -eq 1 ] || fail "a full device was not reported"
    contains "$(cat "$scratch/err")" "(standard output)"
fi
"$millhead" plan cpus --json >&- 2>"$scratch/err"
[ $? -eq 1 ] || fail "a closed standard output was not reported"
contains "$(cat "$scratch/err")" "(standard output)"

finish
