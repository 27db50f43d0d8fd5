/* live.h - looking at a running loop: from inside its control block, and from outside by /proc
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_DIAGNOSE_LIVE_H
#define MH_DIAGNOSE_LIVE_H

#include "diagnose/run_reader.h"
#include "observe/usage.h"
#include "observe/waiting.h"

#include <millhead/diagnose.h>
#include <stdbool.h>

/* --- outside: processes, threads, the machine --- */

/* Counters of a process; what could not be read is 0. */
typedef struct mh_process_counts {
    uint64_t cpu_ns, delay_ns; /* of all its threads */
    uint64_t read_bytes;
    uint64_t pss_bytes, rss_bytes; /* beside pages of files */
} mh_process_counts;

/* One process and what its main thread was seen doing, in numbers of looks. */
typedef struct mh_seen_process {
    int pid;
    mh_process_counts first, last; /* first is all 0 for one that started while we looked */
    uint64_t looks, locked;
    uint64_t run, disk, queue, blocked, hidden; /* queue: polled a pipe, as queues do */
} mh_seen_process;

#define MH_LIVE_SECONDS_MOST 3600

typedef struct mh_outside {
    mh_seen_process main;
    mh_seen_process *workers;
    size_t worker_count, worker_room; /* all that were seen, those that ended too */
    size_t workers_most;              /* at one time */
    /* The main thread waits, for so many looks in a row; whether workers ended meanwhile: then it
     * ends an epoch or begins one, and those looks count as `between`. */
    uint64_t waiting_looks, between;
    size_t workers_alive; /* at the last look */
    bool epoch_ends;
    int pin_thread; /* torch's thread that pins memory; 0: none */
    uint64_t began_ns, ended_ns;
    mh_system_usage system_first, system_last;
    mh_busiest_disk disk;
    double gpu_sum; /* of the busiest device */
    uint64_t gpu_looks;
    mh_memory_point memory[MH_LIVE_SECONDS_MOST + 2]; /* PSS, about once a second */
    size_t memory_count;
} mh_outside;

/* Begins. MH_ERR_NOT_FOUND: no such process. */
MH_MUST_CHECK mh_status mh_outside_open(mh_outside *out, int pid, mh_error *err);
void mh_outside_close(mh_outside *outside);

/* About once a second: these are its workers now. MH_ERR_NOT_FOUND: the process has ended. */
MH_MUST_CHECK mh_status mh_outside_count(mh_outside *outside, const int *workers, size_t count,
                                         mh_error *err);

/* Many times a second: what are they doing? */
void mh_outside_look(mh_outside *outside);

/* Fills facts->usage, and how long it all took. Once, in the end. */
void mh_outside_sum(mh_outside *outside, mh_facts *facts);

/* Whether torch named this process as a worker. */
bool mh_is_torch_worker(int pid);

/* The process a worker works for: its parent, or that of the fork server it came from. 0: that has
 * ended, and the worker was adopted by another program. */
int mh_trainer_of(int worker);

/* The children of a process that look like torch's workers; *out is freed with mh_free. */
MH_MUST_CHECK mh_status mh_torch_workers(int **out, size_t *out_count, int pid, mh_error *err);

/* --- inside: the control blocks of millhead's loaders --- */

typedef struct mh_inside mh_inside;

/* Maps, read-only, every control block the process has open. *out is NULL when it has none. Errors:
 * MH_ERR_IO when its descriptors may not be seen, MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_inside_open(mh_inside **out, int pid, mh_error *err);
void mh_inside_close(mh_inside *inside); /* NULL is allowed */

/* One look at all blocks; now and then for new ones: workers that do not stay have another block in
 * each epoch. MH_ERR_NOT_FOUND: the process has ended. */
MH_MUST_CHECK mh_status mh_inside_look(mh_inside *inside, mh_error *err);

/* The workers of the block where most is going on, as of now; `out` has room for `most`. How many
 * there are. */
size_t mh_inside_workers(const mh_inside *inside, int *out, size_t most);

/* Fills the loader's settings and the batches of that block; those stay the block's. What /proc
 * reports its workers divides their time into CPU, delay and blocked. */
void mh_inside_sum(mh_inside *inside, const mh_outside *outside, mh_facts *facts);

/* Note number `at`, into `out`; false after the last. */
bool mh_inside_note(const mh_inside *inside, size_t at, char *out, size_t room);

#endif
