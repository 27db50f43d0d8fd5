/* control.c - the block of shared memory through which a consumer and its workers talk
 * SPDX-License-Identifier: Apache-2.0
 */
#include "workers/control.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/memory.h"
#include "workers/board.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CONTROL_MAGIC UINT64_C(0x6c74636461656c6d)
#define CONTROL_VERSION 4u
#define CACHE_LINE 64

/* How long to look before sleeping. A sleep and a wake-up cost tens of microseconds in a virtual
 * machine, more than a cheap batch takes to make. */
#define SPIN_NS UINT64_C(20000)

/* Who the consumer sleeps for: nobody, any worker, or worker n as n + 2. */
enum { WAITS_FOR_NOBODY, WAITS_FOR_ANY, WAITS_FOR_FIRST };

typedef struct control_header {
    uint64_t magic;
    uint32_t version;
    mh_control_size size;
    uint32_t task_bytes;
    uint32_t result_bytes;
    _Atomic uint64_t loader;
    alignas(CACHE_LINE) _Atomic uint32_t stop;
    alignas(CACHE_LINE) _Atomic uint32_t done_seq;
    _Atomic uint32_t waits_for;
} control_header;

typedef struct worker_block {
    /* written by the consumer */
    alignas(CACHE_LINE) _Atomic uint32_t task_seq;
    _Atomic uint64_t tasks_put;
    _Atomic uint64_t results_read;
    _Atomic uint64_t spill_read;
    /* written by the worker */
    alignas(CACHE_LINE) _Atomic uint64_t tasks_read;
    _Atomic uint64_t results_put;
    _Atomic uint32_t sleeping;
    _Atomic uint32_t state;
    _Atomic int32_t pid;
    _Atomic uint32_t offset;
    _Atomic uint32_t threads;
    _Atomic uint64_t position;
    _Atomic uint64_t busy_ns;
    _Atomic uint64_t heartbeat_ns;
    _Atomic uint32_t over_limit; /* mh_over_limit; set after over_limit_bytes */
    _Atomic uint64_t over_limit_bytes;
} worker_block;

struct mh_control {
    /* set at open, then read-only */
    mh_memory memory;
    control_header *header;
    mh_board *board; /* or NULL */
    uint32_t worker; /* of a worker's side; the consumer's side has none */
    uint32_t workers;
    uint32_t depth;
    uint32_t fork_generation;
    /* a worker's side: when it took the task in hand */
    uint64_t task_began_ns;
};

/* --- crash points --- */

#if MH_TEST_HOOKS

static struct {
    int armed; /* mh_point + 1; 0: none. Set before any ring is used. */
    long nth;
    int signal;
} point;

static const char *const point_names[] = {
#define MH_POINT_NAME(id, name) name,
    MH_POINT_LIST(MH_POINT_NAME)
#undef MH_POINT_NAME
};

mh_status mh_point_arm(const char *text, mh_error *err)
{
    char name[32];
    long nth;
    int number;
    int end = 0;
    if (sscanf(text, "%31[a-z-]:%ld:%d%n", name, &nth, &number, &end) == 3 && nth > 0 &&
        text[end] == 0) {
        for (int i = 0; i < MH_POINT_COUNT; i++) {
            if (strcmp(name, point_names[i]) == 0) {
                point.armed = i + 1;
                point.nth = nth;
                point.signal = number;
                return MH_OK;
            }
        }
    }
    return mh_fail(err, MH_ERR_INVALID, "'%s' is not NAME:NTH:SIGNAL with a known point", text);
}

static inline void at_point(mh_point here)
{
    if (__builtin_expect(point.armed == (int)here + 1, 0) && --point.nth == 0)
        kill(getpid(), point.signal);
}

#else

static inline void at_point(mh_point here)
{
    (void)here;
}

#endif

/* --- layout --- */

static size_t block_bytes(uint32_t depth)
{
    size_t bytes = sizeof(worker_block) + depth * (sizeof(mh_task) + sizeof(mh_result));
    return (bytes + 4095) / 4096 * 4096; /* a page's start is a cache line's start */
}

/* The board comes last. */
static size_t board_offset(uint32_t workers, uint32_t depth)
{
    return 4096 + workers * block_bytes(depth);
}

static size_t control_bytes(const mh_control_size *size)
{
    return board_offset(size->workers, size->depth) +
           (size->board ? mh_board_bytes(size->under_way) : 0);
}

static bool size_is_possible(const mh_control_size *size)
{
    return size->workers > 0 && size->workers <= 65536 && size->depth > 0 && size->depth <= 65536 &&
           size->under_way > 0 && size->under_way <= (uint64_t)size->workers * size->depth &&
           (size->board == 0 || (size->board == 1 && size->under_way <= 65536));
}

static worker_block *block_of(const mh_control *control, uint32_t worker)
{
    return (worker_block *)(void *)(control->memory.base + 4096 +
                                    worker * block_bytes(control->depth));
}

static mh_task *task_at(const mh_control *control, worker_block *block, uint64_t number)
{
    return (mh_task *)(void *)(block + 1) + number % control->depth;
}

static mh_result *result_at(const mh_control *control, worker_block *block, uint64_t number)
{
    mh_task *after_tasks = (mh_task *)(void *)(block + 1) + control->depth;
    return (mh_result *)(void *)after_tasks + number % control->depth;
}

/* --- opening and closing --- */

mh_status mh_control_open(mh_control **out, const mh_control_size *size, mh_error *err)
{
    if (!size_is_possible(size))
        return mh_fail(err, MH_ERR_INVALID, "%u workers with %u batches each cannot be served",
                       size->workers, size->depth);
    mh_control *control = mh_calloc(1, sizeof *control);
    if (!control)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a control block");
    control->memory.fd = -1;
    size_t bytes = control_bytes(size);
    mh_status status = mh_memory_create(&control->memory, "millhead-control", bytes, bytes, err);
    if (status == MH_OK) /* pages come when they are touched: most of a ring never is */
        status = ftruncate(control->memory.fd, (off_t)bytes) == 0
                     ? MH_OK
                     : mh_fail_sys(err, MH_ERR_NOMEM, errno, "a control block of %zu bytes", bytes);
    if (status != MH_OK) {
        mh_memory_close(&control->memory);
        mh_free(control);
        return status;
    }
    control->memory.size_bytes = bytes;
    control->workers = size->workers;
    control->depth = size->depth;
    control->fork_generation = mh_fork_generation();
    control->header = (control_header *)(void *)control->memory.base;
    *control->header = (control_header){
        .magic = CONTROL_MAGIC,
        .version = CONTROL_VERSION,
        .size = *size,
        .task_bytes = sizeof(mh_task),
        .result_bytes = sizeof(mh_result),
    };
    if (size->board)
        control->board = mh_board_init(
            control->memory.base + board_offset(size->workers, size->depth), size->under_way);
    *out = control;
    return MH_OK;
}

static mh_status header_check(const control_header *header, size_t size, uint32_t worker,
                              mh_error *err)
{
    if (size < sizeof *header || header->magic != CONTROL_MAGIC ||
        header->version != CONTROL_VERSION || header->task_bytes != sizeof(mh_task) ||
        header->result_bytes != sizeof(mh_result))
        return mh_fail(err, MH_ERR_CORRUPT, "not a control block of this version of millhead");
    if (!size_is_possible(&header->size) || size < control_bytes(&header->size))
        return mh_fail(err, MH_ERR_CORRUPT, "a control block of %zu bytes is cut short", size);
    if (worker >= header->size.workers)
        return mh_fail(err, MH_ERR_INVALID, "there is no worker %u among %u", worker,
                       header->size.workers);
    return MH_OK;
}

/* Finds the board of a control block whose header is good, if it has one. */
static mh_status board_attach(mh_control *control, mh_error *err)
{
    const mh_control_size *size = &control->header->size;
    size_t offset = board_offset(size->workers, size->depth);
    if (!size->board)
        return MH_OK;
    control->board =
        mh_board_attach(control->memory.base + offset, control->memory.map_bytes - offset);
    return control->board ? MH_OK
                          : mh_fail(err, MH_ERR_CORRUPT, "a control block with a damaged board");
}

mh_status mh_control_attach(mh_control **out, int fd, uint32_t worker, mh_error *err)
{
    mh_control *control = mh_calloc(1, sizeof *control);
    if (!control)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a control block");
    off_t size = lseek(fd, 0, SEEK_END);
    mh_status status =
        size < 4096 ? mh_fail(err, MH_ERR_CORRUPT, "descriptor %d is not a control block", fd)
                    : mh_memory_attach(&control->memory, fd, (size_t)size, err);
    if (status != MH_OK) {
        mh_free(control);
        return status;
    }
    control->header = (control_header *)(void *)control->memory.base;
    status = header_check(control->header, control->memory.map_bytes, worker, err);
    if (status == MH_OK)
        status = board_attach(control, err);
    if (status != MH_OK) {
        mh_memory_close(&control->memory);
        mh_free(control);
        return status;
    }
    control->worker = worker;
    control->workers = control->header->size.workers;
    control->depth = control->header->size.depth;
    control->fork_generation = mh_fork_generation();
    atomic_store(&block_of(control, worker)->pid, getpid());
    *out = control;
    return MH_OK;
}

mh_status mh_control_look(mh_control **out, int fd, mh_error *err)
{
    off_t size = lseek(fd, 0, SEEK_END);
    if (size < 4096)
        return mh_fail(err, MH_ERR_CORRUPT, "descriptor %d is not a control block", fd);
    mh_control *control = mh_calloc(1, sizeof *control);
    if (!control)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a control block");
    void *base = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
    mh_status status = base == MAP_FAILED
                           ? mh_fail_sys(err, MH_ERR_IO, errno, "mapping a control block")
                           : header_check(base, (size_t)size, 0, err);
    if (status != MH_OK) {
        if (base != MAP_FAILED)
            (void)munmap(base, (size_t)size);
        mh_free(control);
        return status;
    }
    control->memory =
        (mh_memory){.fd = -1, .base = base, .map_bytes = (size_t)size, .size_bytes = (size_t)size};
    control->header = base;
    control->workers = control->header->size.workers;
    control->depth = control->header->size.depth;
    control->fork_generation = mh_fork_generation();
    *out = control;
    return MH_OK;
}

void mh_control_close(mh_control *control)
{
    if (!control || control->fork_generation != mh_fork_generation())
        return;
    mh_memory_close(&control->memory);
    mh_free(control);
}

int mh_control_fd(const mh_control *control)
{
    return control->memory.fd;
}

uint32_t mh_control_workers(const mh_control *control)
{
    return control->workers;
}

mh_board *mh_control_board(const mh_control *control)
{
    return control->board;
}

/* --- the consumer's side --- */

static void worker_wake(worker_block *block)
{
    atomic_fetch_add(&block->task_seq, 1);
    if (atomic_load(&block->sleeping))
        mh_futex_wake(&block->task_seq);
}

void mh_control_set_loader(mh_control *control, uint64_t loader)
{
    atomic_store(&control->header->loader, loader);
}

mh_task *mh_control_task_begin(mh_control *control, uint32_t worker)
{
    worker_block *block = block_of(control, worker);
    uint64_t put = atomic_load_explicit(&block->tasks_put, memory_order_relaxed);
    if (put - atomic_load_explicit(&block->tasks_read, memory_order_acquire) >= control->depth)
        return NULL;
    return task_at(control, block, put);
}

void mh_control_task_publish(mh_control *control, uint32_t worker)
{
    worker_block *block = block_of(control, worker);
    at_point(MH_POINT_TASK_WRITTEN);
    atomic_fetch_add(&block->tasks_put, 1);
    worker_wake(block);
    at_point(MH_POINT_TASK_PUBLISHED);
}

void mh_control_publish_batch(mh_control *control, uint32_t entry, bool again)
{
    at_point(MH_POINT_TASK_WRITTEN);
    mh_board_publish(control->board, entry, again);
    for (uint32_t w = 0; w < control->workers; w++)
        worker_wake(block_of(control, w));
    at_point(MH_POINT_TASK_PUBLISHED);
}

static bool result_there(const mh_control *control, uint32_t worker)
{
    const worker_block *block = block_of(control, worker);
    uint64_t unread = atomic_load(&block->results_put) -
                      atomic_load_explicit(&block->results_read, memory_order_relaxed);
    return unread > 0 && unread <= control->depth; /* a counter that cannot be says nothing */
}

const mh_result *mh_control_result_peek(mh_control *control, uint32_t worker)
{
    worker_block *block = block_of(control, worker);
    if (!result_there(control, worker))
        return NULL;
    at_point(MH_POINT_RESULT_TAKEN);
    return result_at(control, block,
                     atomic_load_explicit(&block->results_read, memory_order_relaxed));
}

void mh_control_result_done(mh_control *control, uint32_t worker)
{
    worker_block *block = block_of(control, worker);
    atomic_fetch_add_explicit(&block->results_read, 1, memory_order_release);
    at_point(MH_POINT_RESULT_DONE);
}

static bool wanted_there(const mh_control *control, uint32_t worker)
{
    if (worker != MH_ANY_WORKER)
        return result_there(control, worker);
    for (uint32_t w = 0; w < control->workers; w++)
        if (result_there(control, w))
            return true;
    return false;
}

int mh_control_result_wait(mh_control *control, uint32_t worker, uint64_t timeout_ns)
{
    control_header *header = control->header;
    uint64_t began = mh_clock_ns();
    uint64_t look_until = began + (timeout_ns < SPIN_NS ? timeout_ns : SPIN_NS);
    uint32_t seen;
    do {
        if (wanted_there(control, worker))
            return 1;
    } while (mh_clock_ns() < look_until);
    /* Announce, then look once more: a worker either sees the announcement after it published, or
     * we see what it published. */
    seen = atomic_load(&header->done_seq);
    atomic_store(&header->waits_for,
                 worker == MH_ANY_WORKER ? WAITS_FOR_ANY : worker + WAITS_FOR_FIRST);
    uint64_t spent = mh_clock_ns() - began;
    if (!wanted_there(control, worker) && spent < timeout_ns)
        mh_futex_wait(&header->done_seq, seen, timeout_ns - spent);
    atomic_store(&header->waits_for, WAITS_FOR_NOBODY);
    return wanted_there(control, worker);
}

void mh_control_spill_done(mh_control *control, uint32_t worker)
{
    atomic_fetch_add_explicit(&block_of(control, worker)->spill_read, 1, memory_order_release);
}

void mh_control_stop(mh_control *control)
{
    if (control->fork_generation != mh_fork_generation())
        return;
    atomic_store(&control->header->stop, 1);
    for (uint32_t w = 0; w < control->workers; w++) {
        worker_block *block = block_of(control, w);
        atomic_fetch_add(&block->task_seq, 1);
        mh_futex_wake(&block->task_seq);
    }
}

void mh_control_view(const mh_control *control, uint32_t worker, mh_worker_view *out)
{
    const worker_block *block = block_of(control, worker);
    uint32_t state = atomic_load(&block->state);
    *out = (mh_worker_view){
        .state = state <= MH_WORKER_LEFT ? (mh_worker_state)state : MH_WORKER_STARTING,
        .pid = atomic_load(&block->pid),
        .position = atomic_load(&block->position),
        .offset = atomic_load(&block->offset),
        .busy_ns = atomic_load(&block->busy_ns),
        .heartbeat_ns = atomic_load(&block->heartbeat_ns),
        .tasks = atomic_load(&block->tasks_read),
        .threads = atomic_load(&block->threads),
    };
}

bool mh_control_over_limit(const mh_control *control, uint32_t worker, mh_over_limit_view *out)
{
    const worker_block *block = block_of(control, worker);
    uint32_t over_limit = atomic_load(&block->over_limit);
    if (over_limit == MH_OVER_LIMIT_NONE || over_limit > MH_OVER_LIMIT_STAYS)
        return false;
    *out = (mh_over_limit_view){.over_limit = (mh_over_limit)over_limit,
                                .bytes = atomic_load(&block->over_limit_bytes),
                                .results_put = atomic_load(&block->results_put)};
    return true;
}

void mh_control_over_limit_seen(mh_control *control, uint32_t worker)
{
    atomic_store(&block_of(control, worker)->over_limit, MH_OVER_LIMIT_NONE);
}

void mh_control_replace_worker(mh_control *control, uint32_t worker)
{
    worker_block *block = block_of(control, worker);
    uint64_t put = atomic_load(&block->results_put);
    /* Its entry is still whole: the consumer has not taken that task's result, and so puts no task
     * into the same place. */
    if (atomic_load(&block->tasks_read) > put)
        atomic_store(&block->tasks_read, put);
    atomic_store(&block->state, MH_WORKER_STARTING);
    atomic_store(&block->pid, 0);
    atomic_store(&block->sleeping, 0);
    mh_control_over_limit_seen(control, worker);
}

/* --- a worker's side --- */

static bool task_there(const worker_block *block)
{
    return atomic_load(&block->tasks_put) !=
           atomic_load_explicit(&block->tasks_read, memory_order_relaxed);
}

static bool task_or_stop(const mh_control *control, const worker_block *block)
{
    return task_there(block) || (control->board && mh_board_open(control->board)) ||
           mh_control_stopped(control);
}

/* Sleeps at most timeout_ns, after a short look, until there is a task or an end. */
static void task_sleep(mh_control *control, worker_block *block, uint64_t timeout_ns)
{
    uint64_t look_until = mh_clock_ns() + SPIN_NS;
    do {
        if (task_or_stop(control, block))
            return;
    } while (mh_clock_ns() < look_until);
    uint32_t seen = atomic_load(&block->task_seq);
    atomic_store(&block->sleeping, 1);
    if (!task_or_stop(control, block))
        mh_futex_wait(&block->task_seq, seen, timeout_ns);
    atomic_store(&block->sleeping, 0);
}

/* Notes what the worker has in hand from now on. */
static void task_taken(mh_control *control, worker_block *block, uint64_t position, uint32_t offset)
{
    control->task_began_ns = mh_clock_ns();
    atomic_store_explicit(&block->offset, offset, memory_order_relaxed);
    atomic_store_explicit(&block->position, position, memory_order_relaxed);
    atomic_store_explicit(&block->heartbeat_ns, control->task_began_ns, memory_order_relaxed);
    mh_control_set_state(control, MH_WORKER_FETCHING);
    at_point(MH_POINT_TASK_TAKEN);
}

const mh_task *mh_control_task_wait(mh_control *control, uint64_t timeout_ns)
{
    worker_block *block = block_of(control, control->worker);
    mh_control_set_state(control, MH_WORKER_IDLE);
    task_sleep(control, block, timeout_ns);
    if (mh_control_stopped(control) || !task_there(block))
        return NULL;
    uint64_t number = atomic_load_explicit(&block->tasks_read, memory_order_relaxed);
    const mh_task *task = task_at(control, block, number);
    task_taken(control, block, task->position, 0);
    return task;
}

bool mh_control_run_wait(mh_control *control, uint64_t sample_ns, uint64_t timeout_ns,
                         mh_board_run *out)
{
    worker_block *block = block_of(control, control->worker);
    mh_control_set_state(control, MH_WORKER_IDLE);
    task_sleep(control, block, timeout_ns);
    if (mh_control_stopped(control) ||
        !mh_board_claim(control->board, control->workers, sample_ns, out))
        return false;
    task_taken(control, block, out->task->position, out->first);
    return true;
}

void mh_control_task_done(mh_control *control)
{
    worker_block *block = block_of(control, control->worker);
    atomic_fetch_add_explicit(&block->tasks_read, 1, memory_order_release);
    at_point(MH_POINT_TASK_DONE);
}

int mh_control_stopped(const mh_control *control)
{
    return (int)atomic_load_explicit(&control->header->stop, memory_order_acquire);
}

bool mh_control_result_room(const mh_control *control)
{
    const worker_block *block = block_of(control, control->worker);
    return atomic_load_explicit(&block->results_put, memory_order_relaxed) -
               atomic_load(&block->results_read) <
           control->depth;
}

mh_result *mh_control_result_begin(mh_control *control)
{
    worker_block *block = block_of(control, control->worker);
    uint64_t put = atomic_load_explicit(&block->results_put, memory_order_relaxed);
    mh_result *result = result_at(control, block, put);
    assert(put - atomic_load(&block->results_read) < control->depth);
    at_point(MH_POINT_RESULT_BEGUN);
    return result;
}

/* Counts the time since the task was taken, or since this was last called. */
static uint64_t busy_until_now(mh_control *control, worker_block *block)
{
    uint64_t now = mh_clock_ns();
    atomic_fetch_add_explicit(&block->busy_ns, now - control->task_began_ns, memory_order_relaxed);
    atomic_store_explicit(&block->heartbeat_ns, now, memory_order_relaxed);
    control->task_began_ns = now;
    return now;
}

void mh_control_run_done(mh_control *control)
{
    busy_until_now(control, block_of(control, control->worker));
    at_point(MH_POINT_TASK_DONE);
}

void mh_control_result_publish(mh_control *control)
{
    control_header *header = control->header;
    worker_block *block = block_of(control, control->worker);
    uint64_t now = busy_until_now(control, block);
    uint64_t put = atomic_load_explicit(&block->results_put, memory_order_relaxed);
    result_at(control, block, put)->published_ns = now;
    at_point(MH_POINT_RESULT_WRITTEN);
    atomic_fetch_add(&block->results_put, 1);
    uint32_t waits_for = atomic_load(&header->waits_for);
    if (waits_for == WAITS_FOR_ANY || waits_for == control->worker + WAITS_FOR_FIRST) {
        atomic_fetch_add(&header->done_seq, 1);
        mh_futex_wake(&header->done_seq);
    }
    at_point(MH_POINT_RESULT_PUBLISHED);
}

const mh_result *mh_control_result_sent(const mh_control *control, uint64_t number)
{
    return result_at(control, block_of(control, control->worker), number);
}

void mh_control_set_over_limit(mh_control *control, mh_over_limit over_limit, uint64_t bytes)
{
    control_header *header = control->header;
    worker_block *block = block_of(control, control->worker);
    if (over_limit == MH_OVER_LIMIT_LEAVES)
        mh_control_set_state(control, MH_WORKER_LEFT);
    atomic_store(&block->over_limit_bytes, bytes);
    atomic_store(&block->over_limit, (uint32_t)over_limit);
    atomic_fetch_add(&header->done_seq, 1);
    mh_futex_wake(&header->done_seq);
}

uint64_t mh_control_spill_read(const mh_control *control)
{
    return atomic_load_explicit(&block_of(control, control->worker)->spill_read,
                                memory_order_acquire);
}

void mh_control_set_state(mh_control *control, mh_worker_state state)
{
    atomic_store_explicit(&block_of(control, control->worker)->state, (uint32_t)state,
                          memory_order_relaxed);
}

void mh_control_set_sample(mh_control *control, uint32_t offset)
{
    atomic_store_explicit(&block_of(control, control->worker)->offset, offset,
                          memory_order_relaxed);
    at_point(MH_POINT_SAMPLE);
}

void mh_control_set_threads(mh_control *control, uint32_t threads)
{
    _Atomic uint32_t *most = &block_of(control, control->worker)->threads; /* no other writer */
    if (threads > atomic_load_explicit(most, memory_order_relaxed))
        atomic_store_explicit(most, threads, memory_order_relaxed);
}

/* --- an onlooker's side: loads only --- */

uint32_t mh_control_depth(const mh_control *control)
{
    return control->depth;
}

uint32_t mh_control_under_way(const mh_control *control)
{
    return control->header->size.under_way;
}

bool mh_control_has_board(const mh_control *control)
{
    return control->header->size.board == 1;
}

uint64_t mh_control_loader(const mh_control *control)
{
    return atomic_load(&control->header->loader);
}

bool mh_control_consumer_waits(const mh_control *control)
{
    return atomic_load(&control->header->waits_for) != WAITS_FOR_NOBODY;
}

void mh_control_counts(const mh_control *control, uint32_t worker, mh_ring_counts *out)
{
    const worker_block *block = block_of(control, worker);
    /* what is read first never passes what is read last */
    out->results_read = atomic_load(&block->results_read);
    out->results_put = atomic_load(&block->results_put);
    out->tasks_read = atomic_load(&block->tasks_read);
    out->tasks_put = atomic_load(&block->tasks_put);
}

bool mh_control_result_note(const mh_control *control, uint32_t worker, uint64_t number,
                            mh_result_note *out)
{
    worker_block *block = block_of(control, worker);
    if (number >= atomic_load(&block->results_put))
        return false;
    const mh_result *result = result_at(control, block, number);
    *out = (mh_result_note){
        .position = result->position,
        .kind = result->kind,
        .samples = result->samples,
        .published_ns = result->published_ns,
        .fetch_ns = result->fetch_ns,
        .collate_ns = result->collate_ns,
    };
    /* The worker writes number + depth into the same place, but not before all results up to it are
     * put and this one is read. */
    atomic_thread_fence(memory_order_acquire);
    return atomic_load(&block->results_read) <= number ||
           atomic_load(&block->results_put) < number + control->depth;
}
