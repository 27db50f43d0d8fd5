/* live_inside.c - what a running millhead loader does, read from its control block
 * SPDX-License-Identifier: Apache-2.0
 *
 * The block is mapped read-only through /proc/PID/fd. Looked at often enough, its counters tell
 * when each batch was taken and for how long the consumer slept before; the results themselves say
 * how long their workers took. Nothing is drained: that is the consumer's.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "diagnose/live.h"
#include "sys/clock.h"
#include "workers/control.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONTROL_NAME "/memfd:millhead-control"
#define BLOCKS_MOST 16
/* A worker that has had a sample in hand for so long is named. */
#define STUCK_NS UINT64_C(5000000000)
/* How often to look for new blocks: where all have ended, the next epoch's comes any moment. */
#define FIND_NS UINT64_C(1000000000)
#define FIND_SOON_NS UINT64_C(20000000)

typedef struct pending_result {
    mh_result_note note;
    uint64_t number;
    bool there;
} pending_result;

typedef struct block_worker {
    mh_ring_counts seen;
    pending_result *pending;            /* depth of them: result n at n % depth */
    uint64_t looks[MH_WORKER_LEFT + 1]; /* in each state */
    uint64_t stuck_ns;                  /* at the last look, in one task */
    mh_worker_view view;
} block_worker;

/* What a thread has used and waited for so far. */
typedef struct thread_counts {
    uint64_t cpu_ns, delay_ns;
} thread_counts;

/* A control block, and what was seen of it. */
typedef struct live_block {
    mh_control *control;
    ino_t inode;
    uint32_t worker_count;
    block_worker *workers;
    bool begun; /* a batch was taken since we look: the next one's time is known whole */
    uint64_t last_look_ns, last_take_ns;
    uint64_t waited_ns;             /* since last_take_ns */
    thread_counts last_take;        /* of the consumer's thread */
    uint64_t looks, waiting, ready; /* ready: batches, summed over the looks */
    mh_batch_cost *batches;
    size_t batch_count, batch_room;
    unsigned epochs; /* that began while we looked, with workers of their own */
} live_block;

struct mh_inside {
    int pid;
    int consumer_fd; /* schedstat of the thread that takes batches; -1: may not be seen */
    live_block blocks[BLOCKS_MOST];
    size_t count;
    uint64_t next_find_ns;
};

/* --- opening --- */

static void block_close(live_block *block)
{
    for (uint32_t w = 0; block->workers && w < block->worker_count; w++)
        mh_free(block->workers[w].pending);
    mh_free(block->workers);
    mh_free(block->batches);
    mh_control_close(block->control);
}

void mh_inside_close(mh_inside *inside)
{
    if (!inside)
        return;
    for (size_t at = 0; at < inside->count; at++)
        block_close(&inside->blocks[at]);
    if (inside->consumer_fd >= 0)
        (void)close(inside->consumer_fd);
    mh_free(inside);
}

static mh_status block_prepare(live_block *block, mh_error *err)
{
    uint32_t depth = mh_control_depth(block->control);
    block->worker_count = mh_control_workers(block->control);
    block->workers = mh_calloc(block->worker_count, sizeof *block->workers);
    if (!block->workers)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %u workers", block->worker_count);
    for (uint32_t w = 0; w < block->worker_count; w++) {
        block_worker *worker = &block->workers[w];
        worker->pending = mh_calloc(depth, sizeof *worker->pending);
        if (!worker->pending)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for %u results", depth);
        mh_control_counts(block->control, w, &worker->seen);
    }
    block->last_look_ns = block->last_take_ns = mh_clock_ns();
    return MH_OK;
}

/* Workers that do not stay have another block in each epoch: the loader whose block has ended goes
 * on in it. False: there is none. The first batch of an epoch is not counted, as everywhere. */
static bool block_go_on(mh_inside *inside, mh_control *control, ino_t inode)
{
    live_block *block = NULL;
    for (size_t at = 0; at < inside->count && !block; at++) {
        live_block *ended = &inside->blocks[at];
        if (mh_control_stopped(ended->control) &&
            mh_control_loader(ended->control) == mh_control_loader(control) &&
            ended->worker_count == mh_control_workers(control) &&
            mh_control_depth(ended->control) == mh_control_depth(control) &&
            mh_control_has_board(ended->control) == mh_control_has_board(control))
            block = ended;
    }
    if (!block)
        return false;
    mh_control_close(block->control);
    block->control = control;
    block->inode = inode;
    block->begun = false;
    block->waited_ns = 0;
    block->epochs++;
    block->last_look_ns = block->last_take_ns = mh_clock_ns();
    for (uint32_t w = 0; w < block->worker_count; w++) {
        block_worker *worker = &block->workers[w];
        for (uint32_t at = 0; at < mh_control_depth(control); at++)
            worker->pending[at].there = false;
        mh_control_counts(control, w, &worker->seen);
    }
    return true;
}

/* Adds the block behind descriptor `name` of the process, if it is one, of this version, and new.
 */
static mh_status block_add(mh_inside *inside, int pid, const char *name, mh_error *err)
{
    char path[300], target[64];
    struct stat about;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%s", pid, name);
    ssize_t length = readlink(path, target, sizeof target);
    if (length < (ssize_t)strlen(CONTROL_NAME) ||
        memcmp(target, CONTROL_NAME, strlen(CONTROL_NAME)) != 0)
        return MH_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0) {
        if (fd >= 0)
            (void)close(fd);
        return MH_OK; /* closed meanwhile */
    }
    bool known = false;
    for (size_t at = 0; at < inside->count; at++)
        known = known || inside->blocks[at].inode == about.st_ino;
    live_block block = {.inode = about.st_ino};
    mh_status status = known ? MH_END : mh_control_look(&block.control, fd, err);
    (void)close(fd);
    bool lives = status == MH_OK && !mh_control_stopped(block.control);
    if (lives && block_go_on(inside, block.control, about.st_ino))
        return MH_OK;
    if (lives && inside->count < BLOCKS_MOST) {
        status = block_prepare(&block, err);
        inside->blocks[inside->count++] = block;
        return status;
    }
    mh_control_close(block.control);
    return status == MH_ERR_NOMEM ? status : MH_OK;
}

static mh_status blocks_find(mh_inside *inside, int pid, DIR *descriptors, mh_error *err)
{
    mh_status status = MH_OK;
    for (struct dirent *entry; status == MH_OK && (entry = readdir(descriptors));)
        if (entry->d_name[0] != '.')
            status = block_add(inside, pid, entry->d_name, err);
    return status;
}

/* All blocks the process has open that are not known yet. */
static mh_status find_all(mh_inside *inside, mh_error *err)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/fd", inside->pid);
    DIR *descriptors = opendir(path);
    if (!descriptors)
        return errno == ENOENT
                   ? mh_fail(err, MH_ERR_NOT_FOUND, "there is no process %d", inside->pid)
                   : mh_fail_sys(err, MH_ERR_IO, errno, "reading %s", path);
    mh_status status = blocks_find(inside, inside->pid, descriptors, err);
    (void)closedir(descriptors);
    inside->next_find_ns = mh_clock_ns() + FIND_NS;
    return status;
}

mh_status mh_inside_open(mh_inside **out, int pid, mh_error *err)
{
    mh_inside *inside = mh_calloc(1, sizeof *inside);
    if (!inside)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to look at process %d", pid);
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", pid, pid);
    inside->pid = pid;
    inside->consumer_fd = open(path, O_RDONLY | O_CLOEXEC);
    mh_status status = find_all(inside, err);
    if (status != MH_OK || inside->count == 0) {
        mh_inside_close(inside);
        inside = NULL;
    }
    if (status == MH_OK)
        *out = inside;
    return status;
}

/* --- looking --- */

/* Remembers what came since the last look, while it can still be read. */
static void results_note(live_block *block, uint32_t w, const mh_ring_counts *now)
{
    block_worker *worker = &block->workers[w];
    uint32_t depth = mh_control_depth(block->control);
    uint64_t from = worker->seen.results_put;
    if (now->results_put - from > depth)
        from = now->results_put - depth;
    for (uint64_t number = from; number < now->results_put; number++) {
        pending_result *pending = &worker->pending[number % depth];
        pending->number = number;
        pending->there = mh_control_result_note(block->control, w, number, &pending->note);
    }
}

static mh_status batch_add(live_block *block, mh_batch_cost batch, mh_error *err)
{
    if (block->batch_count == block->batch_room) {
        size_t room = block->batch_room ? 2 * block->batch_room : 256;
        void *grown = mh_realloc(block->batches, room, sizeof *block->batches);
        if (!grown)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu batches", room);
        block->batches = grown;
        block->batch_room = room;
    }
    block->batches[block->batch_count++] = batch;
    return MH_OK;
}

/* A result that was taken, as a batch whose wait and step are filled in later. False for a result
 * that is no batch. */
static bool batch_of(const pending_result *pending, uint64_t number, uint32_t w, bool board,
                     mh_batch_cost *out)
{
    bool known = pending->there && pending->number == number;
    uint32_t kind = known ? pending->note.kind : (uint32_t)MH_RESULT_SLOT;
    if (kind == MH_RESULT_END || kind == MH_RESULT_PART)
        return false;
    *out = (mh_batch_cost){
        .fetch = known && !board ? pending->note.fetch_ns : MH_NOT_MEASURED,
        .collate = known && !board ? pending->note.collate_ns : MH_NOT_MEASURED,
        .wait_cpu = MH_NOT_MEASURED,
        .step_train = MH_NOT_MEASURED,
        .step_cpu = MH_NOT_MEASURED,
        .fetch_cpu = MH_NOT_MEASURED,
        .collate_cpu = MH_NOT_MEASURED,
        .samples = known ? pending->note.samples : 0,
        .worker = (int32_t)w,
    };
    return true;
}

/* Batches taken since the last look; those of one look share its time. */
static mh_status results_take(live_block *block, uint32_t w, const mh_ring_counts *now,
                              mh_error *err)
{
    block_worker *worker = &block->workers[w];
    uint32_t depth = mh_control_depth(block->control);
    uint64_t from = worker->seen.results_read;
    if (now->results_read - from > (uint64_t)depth * 64)
        from = now->results_read; /* counters that make no sense tell nothing */
    for (uint64_t number = from; number < now->results_read; number++) {
        mh_batch_cost batch;
        if (!batch_of(&worker->pending[number % depth], number, w,
                      mh_control_has_board(block->control), &batch))
            continue;
        mh_status status = batch_add(block, batch, err);
        if (status != MH_OK)
            return status;
    }
    return MH_OK;
}

/* False: it cannot be read. */
static bool consumer_read(const mh_inside *inside, thread_counts *out)
{
    char text[96];
    ssize_t length = pread(inside->consumer_fd, text, sizeof text, 0);
    *out = (thread_counts){0};
    return length > 0 && mh_parse_schedstat(text, (size_t)length, &out->cpu_ns, &out->delay_ns);
}

static uint64_t at_most(uint64_t value, uint64_t most)
{
    return value < most ? value : most;
}

/* Divides the time since the last batch was taken among those taken now. The consumer uses a CPU in
 * its steps, hardly while it sleeps for a batch. What it used between epochs, to end workers and to
 * start others, lies before the first batch of the next and belongs to no step. */
static void times_share(const mh_inside *inside, live_block *block, size_t before, uint64_t now_ns)
{
    size_t taken = block->batch_count - before;
    if (taken == 0)
        return;
    uint64_t passed = now_ns - block->last_take_ns;
    uint64_t waited = block->waited_ns < passed ? block->waited_ns : passed;
    thread_counts now;
    bool known = consumer_read(inside, &now);
    for (size_t at = before; at < block->batch_count; at++) {
        mh_batch_cost *batch = &block->batches[at];
        batch->wait = waited / taken;
        batch->step = (passed - waited) / taken;
        if (known) {
            batch->step_cpu = at_most((now.cpu_ns - block->last_take.cpu_ns) / taken, batch->step);
            batch->step_delay = at_most((now.delay_ns - block->last_take.delay_ns) / taken,
                                        batch->step - batch->step_cpu);
        }
    }
    if (!block->begun) /* we came in the middle of it */
        block->batch_count = before;
    block->begun = true;
    block->last_take_ns = now_ns;
    block->last_take = now;
    block->waited_ns = 0;
}

static mh_status block_look(const mh_inside *inside, live_block *block, mh_error *err)
{
    uint64_t now_ns = mh_clock_ns();
    size_t before = block->batch_count;
    if (mh_control_consumer_waits(block->control)) {
        block->waited_ns += now_ns - block->last_look_ns;
        block->waiting++;
    }
    block->last_look_ns = now_ns;
    block->looks++;
    for (uint32_t w = 0; w < block->worker_count; w++) {
        block_worker *worker = &block->workers[w];
        mh_ring_counts now;
        mh_control_counts(block->control, w, &now);
        mh_control_view(block->control, w, &worker->view);
        bool busy = worker->view.state >= MH_WORKER_FETCHING && worker->view.state < MH_WORKER_LEFT;
        worker->looks[worker->view.state]++;
        worker->stuck_ns =
            busy && now_ns > worker->view.heartbeat_ns ? now_ns - worker->view.heartbeat_ns : 0;
        block->ready += now.results_put - now.results_read;
        results_note(block, w, &now);
        mh_status status = results_take(block, w, &now, err);
        if (status != MH_OK)
            return status;
        worker->seen = now;
    }
    times_share(inside, block, before, now_ns);
    return MH_OK;
}

mh_status mh_inside_look(mh_inside *inside, mh_error *err)
{
    mh_status status = MH_OK;
    bool any = false;
    for (size_t at = 0; at < inside->count && status == MH_OK; at++) {
        if (mh_control_stopped(inside->blocks[at].control))
            continue;
        any = true;
        status = block_look(inside, &inside->blocks[at], err);
    }
    uint64_t now_ns = mh_clock_ns();
    if (!any && inside->next_find_ns > now_ns + FIND_SOON_NS)
        inside->next_find_ns = now_ns + FIND_SOON_NS;
    if (status == MH_OK && now_ns >= inside->next_find_ns)
        status = find_all(inside, err);
    return status;
}

/* --- what was seen --- */

static uint64_t looks_busy(const block_worker *worker)
{
    return worker->looks[MH_WORKER_FETCHING] + worker->looks[MH_WORKER_COLLATING] +
           worker->looks[MH_WORKER_SENDING];
}

/* The block from which most batches were taken; without any, the one whose workers did most. */
static live_block *busiest(const mh_inside *inside)
{
    const live_block *best = &inside->blocks[0];
    uint64_t best_busy = 0;
    for (size_t at = 0; at < inside->count; at++) {
        const live_block *block = &inside->blocks[at];
        uint64_t busy = 1;
        for (uint32_t w = 0; w < block->worker_count; w++)
            busy += looks_busy(&block->workers[w]);
        if (block->batch_count > best->batch_count ||
            (block->batch_count == best->batch_count && busy > best_busy)) {
            best = block;
            best_busy = busy;
        }
    }
    return (live_block *)best;
}

size_t mh_inside_workers(const mh_inside *inside, int *out, size_t most)
{
    const live_block *block = busiest(inside);
    size_t count = 0;
    for (uint32_t w = 0; w < block->worker_count && count < most; w++) {
        mh_worker_view view;
        mh_control_view(block->control, w, &view);
        if (view.pid > 0)
            out[count++] = view.pid;
    }
    return count;
}

static const mh_seen_process *process_of(const mh_outside *outside, int pid)
{
    for (size_t at = 0; at < outside->worker_count; at++)
        if (outside->workers[at].pid == pid)
            return &outside->workers[at];
    return NULL;
}

/* Part of `time` that `part` is of `whole`, at most all of it. */
static uint64_t portion(uint64_t time, double part, double whole)
{
    double share = whole > 0 ? part / whole : 0;
    return (uint64_t)((double)time * (share < 0 ? 0 : share > 1 ? 1 : share));
}

/* Splits the batches' times of one worker by what /proc says of its process. Collating is taken to
 * be all on a CPU; what else it used was fetching. */
static void worker_split(live_block *block, uint32_t w, const mh_seen_process *process)
{
    double fetch = 0, collate = 0, count = 0;
    for (size_t at = 0; at < block->batch_count; at++) {
        const mh_batch_cost *batch = &block->batches[at];
        if (batch->worker != (int32_t)w || batch->fetch == MH_NOT_MEASURED)
            continue;
        fetch += (double)batch->fetch;
        collate += (double)batch->collate;
        count++;
    }
    double cpu = (double)(process->last.cpu_ns - process->first.cpu_ns);
    double delay = process->last.delay_ns > process->first.delay_ns
                       ? (double)(process->last.delay_ns - process->first.delay_ns)
                       : 0;
    double read = (double)(process->last.read_bytes - process->first.read_bytes);
    for (size_t at = 0; at < block->batch_count; at++) {
        mh_batch_cost *batch = &block->batches[at];
        if (batch->worker != (int32_t)w || batch->fetch == MH_NOT_MEASURED)
            continue;
        batch->collate_cpu = batch->collate;
        batch->fetch_cpu = portion(batch->fetch, cpu - collate, fetch);
        batch->fetch_delay = portion(batch->fetch, delay, fetch + collate);
        if (batch->fetch_delay > batch->fetch - batch->fetch_cpu)
            batch->fetch_delay = batch->fetch - batch->fetch_cpu;
        batch->read_bytes = (uint64_t)(read / count);
    }
}

/* Workers of several epochs: which of them made a batch is not known, so each has its part of what
 * all used. */
static void workers_split(live_block *block, const mh_outside *outside)
{
    mh_seen_process sum = {0};
    for (size_t at = 0; at < outside->worker_count; at++) {
        const mh_process_counts *first = &outside->workers[at].first;
        const mh_process_counts *last = &outside->workers[at].last;
        sum.last.cpu_ns += last->cpu_ns - first->cpu_ns;
        sum.last.delay_ns +=
            last->delay_ns > first->delay_ns ? last->delay_ns - first->delay_ns : 0;
        sum.last.read_bytes += last->read_bytes - first->read_bytes;
    }
    sum.last.cpu_ns /= block->worker_count;
    sum.last.delay_ns /= block->worker_count;
    sum.last.read_bytes /= block->worker_count;
    for (uint32_t w = 0; w < block->worker_count; w++)
        worker_split(block, w, &sum);
}

/* From a board, where a batch is nobody's: each gets an equal part of the time all workers were
 * busy. */
static void board_split(live_block *block, const mh_outside *outside, double wall_ns)
{
    double busy = 0, cpu = 0, delay = 0, read = 0;
    double count = (double)(block->batch_count ? block->batch_count : 1);
    uint32_t turn = 0;
    for (uint32_t w = 0; w < block->worker_count; w++) {
        const block_worker *worker = &block->workers[w];
        const mh_seen_process *process = process_of(outside, worker->view.pid);
        busy += (double)looks_busy(worker) / (double)(block->looks ? block->looks : 1) * wall_ns;
        if (!process)
            continue;
        cpu += (double)(process->last.cpu_ns - process->first.cpu_ns);
        read += (double)(process->last.read_bytes - process->first.read_bytes);
        if (process->last.delay_ns > process->first.delay_ns)
            delay += (double)(process->last.delay_ns - process->first.delay_ns);
    }
    for (size_t at = 0; at < block->batch_count; at++) {
        mh_batch_cost *batch = &block->batches[at];
        batch->fetch = (uint64_t)(busy / count);
        batch->fetch_cpu = portion(batch->fetch, cpu, busy);
        batch->fetch_delay = portion(batch->fetch - batch->fetch_cpu, delay, busy - cpu);
        batch->collate = batch->collate_cpu = 0;
        batch->read_bytes = (uint64_t)(read / count);
        batch->worker = (int32_t)turn;
        turn = turn + 1 < block->worker_count ? turn + 1 : 0;
    }
}

/* To /proc a wait for the loader, or for a task, is a wait like any other; the block knows better.
 */
static void usage_correct(const live_block *block, mh_usage_sum *usage)
{
    uint64_t idle = 0, all = block->looks * block->worker_count;
    for (uint32_t w = 0; w < block->worker_count; w++)
        idle += block->workers[w].looks[MH_WORKER_IDLE];
    if (all == 0)
        return;
    usage->main_data = (double)block->waiting / (double)block->looks;
    double idle_share = (double)idle / (double)all;
    double blocked = usage->workers_blocked + usage->workers_idle - idle_share;
    usage->workers_idle = idle_share;
    usage->workers_blocked = blocked > 0 ? blocked : 0;
}

void mh_inside_sum(mh_inside *inside, const mh_outside *outside, mh_facts *facts)
{
    live_block *block = busiest(inside);
    bool board = mh_control_has_board(block->control);
    if (board)
        board_split(block, outside, (double)facts->usage.wall_ns);
    else if (block->epochs)
        workers_split(block, outside);
    for (uint32_t w = 0; !board && !block->epochs && w < block->worker_count; w++) {
        const mh_seen_process *process = process_of(outside, block->workers[w].view.pid);
        if (process)
            worker_split(block, w, process);
    }
    usage_correct(block, &facts->usage);
    facts->batches = block->batches;
    facts->batch_count = block->batch_count;
    facts->workers = (int)block->worker_count;
    if (block->worker_count > 0)
        facts->prefetch = (int)(mh_control_under_way(block->control) / block->worker_count);
    for (size_t at = 0; at < block->batch_count; at++)
        if ((int)block->batches[at].samples > facts->batch_size)
            facts->batch_size = (int)block->batches[at].samples;
    (void)snprintf(facts->kind, sizeof facts->kind, "millhead");
}

static void states_note(const live_block *block, char *out, size_t room)
{
    uint64_t sums[MH_WORKER_LEFT + 1] = {0}, all = 0;
    for (uint32_t w = 0; w < block->worker_count; w++)
        for (int state = 0; state <= MH_WORKER_LEFT; state++) {
            sums[state] += block->workers[w].looks[state];
            all += block->workers[w].looks[state];
        }
    double per_cent = all ? 100.0 / (double)all : 0;
    (void)snprintf(
        out, room,
        "%u workers: %.0f %% of their time fetching, %.0f %% collating and sending, %.0f "
        "%% idle; %.1f batches ready on average",
        block->worker_count, per_cent * (double)sums[MH_WORKER_FETCHING],
        per_cent * (double)(sums[MH_WORKER_COLLATING] + sums[MH_WORKER_SENDING]),
        per_cent * (double)sums[MH_WORKER_IDLE],
        (double)block->ready / (double)(block->looks ? block->looks : 1));
}

bool mh_inside_note(const mh_inside *inside, size_t at, char *out, size_t room)
{
    const live_block *block = busiest(inside);
    if (at == 0) {
        states_note(block, out, room);
        return true;
    }
    for (uint32_t w = 0; w < block->worker_count; w++) {
        const block_worker *worker = &block->workers[w];
        if (worker->stuck_ns < STUCK_NS || --at > 0)
            continue;
        (void)snprintf(out, room,
                       "worker %u (pid %d) has had batch %llu in hand for %.0f s and is at its "
                       "sample %u",
                       w, worker->view.pid, (unsigned long long)worker->view.position,
                       (double)worker->stuck_ns / 1e9, worker->view.offset);
        return true;
    }
    return false;
}
