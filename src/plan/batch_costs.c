/* batch_costs.c - a batch's measured times, taken apart
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan/batch_costs.h"

#include <string.h>

/* A step whose thread was blocked for a tenth of it or more waits for a device (or sleeps in its
 * place): what it does on a CPU beside that is the consumer's own work. A step blocked for less may
 * be training on the CPU. Of it: without what it waited for a CPU, which other processes cause. */
#define DEVICE_BLOCKED 0.1
/* A device this busy is what a step waits for, even where the waiting spins on a CPU. */
#define DEVICE_BUSY 0.8
/* What a byte from storage costs on a CPU: a page found, filled by the device and copied out, at
 * some 2.5 GB/s. Reading less saves it, so it is the disk's and not the decoder's. */
#define READ_CPU_NS_PER_BYTE 0.4
/* What a byte of text costs on its way from a worker, on each side: pickled and written, read and
 * unpickled; tensors travel in shared memory. */
#define PICKLE_NS_PER_BYTE 1.0
/* The consumer's process using this many times its own thread's CPU time trains on more threads. */
#define HELPED 1.2
/* Most that helping threads can have waited for each ns on a CPU: beyond, it was others that did.
 */
#define HELPERS_WAIT_MOST 8.0

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static double above_zero(double value)
{
    return value > 0 ? value : 0;
}

/* Splits a duration into CPU, delay and the rest, each within what is left of it. */
static void split(double whole, double on_cpu, double delayed, double *cpu, double *delay,
                  double *blocked)
{
    *cpu = smaller(on_cpu, whole);
    *delay = smaller(delayed, whole - *cpu);
    *blocked = whole - *cpu - *delay;
}

/* In a thread that sleeps, delay is of two kinds: what others take while it works, and getting a
 * CPU back each time it wakes. The second comes with being blocked, and would go with it. */
static void split_wake_ups(const mh_costing *costing, mh_phase phase, double *delay,
                           double *blocked)
{
    double waking = costing->waking[phase] * *delay;
    *blocked += waking;
    *delay -= waking;
}

/* Where one thread does everything, the phase with the least delay for its CPU time shows what
 * working alone brings; delay above that is from waking up. With workers, the phases of many
 * threads cannot be compared like that. */
static void find_waking(mh_costing *costing, const mh_facts *facts)
{
    double cpu[MH_PHASES] = {0}, delay[MH_PHASES] = {0}, all = 0, least = -1;
    for (size_t at = 0; at < facts->batch_count; at++) {
        const mh_batch_cost *batch = &facts->batches[at];
        if (batch->fetch == MH_NOT_MEASURED)
            return;
        cpu[MH_PHASE_FETCH] += mh_ns(batch->fetch_cpu);
        cpu[MH_PHASE_COLLATE] += mh_ns(batch->collate_cpu);
        cpu[MH_PHASE_STEP] += mh_ns(batch->step_cpu);
        delay[MH_PHASE_FETCH] += mh_ns(batch->fetch_delay);
        delay[MH_PHASE_COLLATE] += mh_ns(batch->collate_delay);
        delay[MH_PHASE_STEP] += mh_ns(batch->step_delay);
    }
    for (int phase = 0; phase < MH_PHASES; phase++)
        all += cpu[phase];
    for (int phase = 0; phase < MH_PHASES; phase++) {
        int much = cpu[phase] > 0.1 * all; /* less is too little to go by */
        if (much && (least < 0 || delay[phase] / cpu[phase] < least))
            least = delay[phase] / cpu[phase];
    }
    for (int phase = 0; phase < MH_PHASES; phase++) {
        if (least >= 0 && delay[phase] > least * cpu[phase])
            costing->waking[phase] = 1 - least * cpu[phase] / delay[phase];
    }
}

/* What the consumer waited for a CPU and its events do not tell: they do not look after every step,
 * and what was not looked at counts as blocked. The kernel's own sum for the process has it all. */
static double delay_untold(const mh_usage_sum *usage, double time, double told)
{
    double waiting = above_zero(usage->loader_delay - usage->workers_delay);
    return usage->wall_ns ? above_zero(waiting * time - told) : 0;
}

static int device_is_busy(const mh_usage_sum *usage)
{
    return usage->wall_ns && usage->gpu_util >= DEVICE_BUSY;
}

/* Whether what the consumer does on a CPU in its steps is its own work and not the training. */
static int main_is_known(const mh_facts *facts)
{
    double step = 0, delay = 0, cpu = 0, blocked = 0, measured = 0;
    double waits = 0, waits_cpu = 0, waits_delay = 0;
    for (size_t at = 0; at < facts->batch_count; at++) {
        const mh_batch_cost *batch = &facts->batches[at];
        double on_cpu, delayed, rest;
        split(mh_ns(batch->step), mh_ns(batch->step_cpu), mh_ns(batch->step_delay), &on_cpu,
              &delayed, &rest);
        step += mh_ns(batch->step);
        waits += mh_ns(batch->wait);
        waits_cpu += smaller(mh_ns(batch->wait_cpu), mh_ns(batch->wait));
        waits_delay += smaller(mh_ns(batch->wait_delay), mh_ns(batch->wait));
        cpu += on_cpu;
        delay += delayed;
        blocked += rest;
        measured += batch->step_cpu != MH_NOT_MEASURED;
    }
    const mh_usage_sum *usage = &facts->usage;
    double untold = delay_untold(usage, step + waits, delay + waits_delay);
    blocked = above_zero(blocked - untold);
    delay += smaller(untold, step - delay);
    if (measured * 2 < (double)facts->batch_count || blocked < DEVICE_BLOCKED * (step - delay))
        return 0;
    if (device_is_busy(usage))
        return 0;
    double own_cpus = (cpu + waits_cpu) / (step + waits + 1);
    int helped = usage->wall_ns && usage->main_cpus > HELPED * own_cpus + 0.1;
    return !helped;
}

/* What helping threads of workers waited for a CPU, for each ns they had one. */
static double delay_of_helpers(const mh_facts *facts)
{
    double told = 0, helpers = 0, time = 0;
    for (size_t at = 0; at < facts->batch_count; at++) {
        const mh_batch_cost *batch = &facts->batches[at];
        told += mh_ns(batch->fetch_delay) + mh_ns(batch->collate_delay);
        helpers += mh_ns(batch->fetch_helpers) + mh_ns(batch->collate_helpers);
        time += mh_ns(batch->wait) + mh_ns(batch->step);
    }
    double waited = above_zero(facts->usage.workers_delay * time - told);
    return helpers > 0 ? smaller(waited / helpers, HELPERS_WAIT_MOST) : 0;
}

void mh_costing_init(mh_costing *costing, const mh_facts *facts)
{
    double sum = 0, count = 0;
    for (size_t at = 0; at < facts->batch_count; at++) {
        if (!facts->batches[at].first) {
            sum += mh_ns(facts->batches[at].wait);
            count++;
        }
    }
    *costing = (mh_costing){
        .inline_fetch = facts->workers == 0 || strcmp(facts->kind, "iterable") == 0,
        .pins = facts->pin_memory == 1,
        .main_known = main_is_known(facts),
        .device_busy = device_is_busy(&facts->usage),
        .mean_wait = count > 0 ? sum / count : 0,
        .loop_io = facts->loop_io > 0 && facts->loop_io <= 1 ? facts->loop_io : 0,
    };
    costing->helpers_delay = delay_of_helpers(facts);
    if (costing->inline_fetch) {
        costing->pickling = mh_ns(facts->batch_texts) * PICKLE_NS_PER_BYTE;
        find_waking(costing, facts);
    }
}

/* Where the consumer makes the batches, what is left of its wait is the loader's own: it asks the
 * sampler, and where it pins nobody knows which of the two it was. */
static void cost_drawing(mh_costs *out, const mh_costing *costing, const mh_batch_cost *batch)
{
    double rest = above_zero(mh_ns(batch->wait) - mh_ns(batch->fetch) - mh_ns(batch->collate));
    double delay = above_zero(mh_ns(batch->wait_delay) - mh_ns(batch->fetch_delay) -
                              mh_ns(batch->collate_delay));
    out->transfer_delay = smaller(delay, rest);
    out->transfer = rest - out->transfer_delay;
    out->drawing = costing->pins ? 0 : out->transfer;
}

/* A thread that sleeps while others of its process compute for it, as libraries with pools of their
 * own have it do (zarr, pyarrow, tokenizers): that is computing, as far as they did, and waiting
 * for a CPU, as far as they did that. */
static void cost_helpers(const mh_costing *costing, uint64_t helpers, double *cpu, double *delay,
                         double *blocked, double *pool)
{
    double computed = smaller(mh_ns(helpers), *blocked);
    double delayed = smaller(mh_ns(helpers) * costing->helpers_delay, *blocked - computed);
    *cpu += computed;
    *delay += delayed;
    *blocked -= computed + delayed;
    *pool += mh_ns(helpers) - computed;
}

static void cost_making(mh_costs *out, const mh_costing *costing, const mh_batch_cost *batch)
{
    double wait = mh_ns(batch->wait);
    if (batch->fetch != MH_NOT_MEASURED) {
        split(mh_ns(batch->fetch), mh_ns(batch->fetch_cpu), mh_ns(batch->fetch_delay),
              &out->fetch_cpu, &out->fetch_delay, &out->fetch_blocked);
        split(mh_ns(batch->collate), mh_ns(batch->collate_cpu), mh_ns(batch->collate_delay),
              &out->collate_cpu, &out->collate_delay, &out->collate_blocked);
        split_wake_ups(costing, MH_PHASE_FETCH, &out->fetch_delay, &out->fetch_blocked);
        split_wake_ups(costing, MH_PHASE_COLLATE, &out->collate_delay, &out->collate_blocked);
        cost_helpers(costing, batch->fetch_helpers, &out->fetch_cpu, &out->fetch_delay,
                     &out->fetch_blocked, &out->pool_cpu);
        cost_helpers(costing, batch->collate_helpers, &out->collate_cpu, &out->collate_delay,
                     &out->collate_blocked, &out->pool_cpu);
        out->read_cpu = smaller(mh_ns(batch->read_bytes) * READ_CPU_NS_PER_BYTE, out->fetch_cpu);
        out->fetch_cpu -= out->read_cpu;
        if (!costing->inline_fetch) {
            double taking = smaller(mh_ns(batch->transfer), wait);
            out->transfer_delay = smaller(mh_ns(batch->wait_delay), taking);
            taking -= out->transfer_delay;
            out->transfer = batch->wait_cpu == MH_NOT_MEASURED
                                ? taking
                                : smaller(mh_ns(batch->wait_cpu), taking);
            out->drawing = smaller(mh_ns(batch->order), taking);
            out->transfer = out->drawing > out->transfer ? out->drawing : out->transfer;
            out->passing = taking - out->transfer;
        } else if (!batch->first) {
            cost_drawing(out, costing, batch);
        }
        return;
    }
    double making = batch->first ? smaller(wait, costing->mean_wait) : wait;
    out->drawing = costing->inline_fetch ? 0 : smaller(mh_ns(batch->order), making);
    out->transfer = out->drawing;
    making -= out->drawing;
    if (costing->inline_fetch)
        split(making, mh_ns(batch->wait_cpu), mh_ns(batch->wait_delay), &out->fetch_cpu,
              &out->fetch_delay, &out->fetch_blocked);
    else
        out->unknown = making;
}

/* What is left of a step beside its training. Of what it waited for a CPU the training has its
 * share: it was measured by the clock. */
static double beside_training(const mh_batch_cost *batch, double worked, double delay)
{
    double step = mh_ns(batch->step), train = smaller(mh_ns(batch->step_train), step);
    return step > 0 ? above_zero(worked - train + delay * train / step) : 0;
}

/* Blocked beside the training is the consumer's own doing only because the loop says what its
 * training is: hooks count what the thread sleeps as training. A busy device knows better. */
static void cost_step(mh_costs *out, const mh_costing *costing, const mh_batch_cost *batch)
{
    double cpu, blocked, main_work = 0;
    split(mh_ns(batch->step), mh_ns(batch->step_cpu), mh_ns(batch->step_delay), &cpu,
          &out->step_delay, &blocked);
    split_wake_ups(costing, MH_PHASE_STEP, &out->step_delay, &blocked);
    if (batch->step_own) /* what it waited for a CPU is neither's */
        main_work = smaller(mh_ns(batch->step_own), cpu);
    else if (batch->step_train != MH_NOT_MEASURED)
        main_work = beside_training(batch, cpu + blocked, out->step_delay);
    else if (costing->main_known)
        main_work = cpu;
    out->main_cpu = smaller(main_work, cpu);
    out->main_blocked = costing->device_busy ? 0 : main_work - out->main_cpu;
    /* seen on the stack: a request to a server is no device */
    double io = smaller(costing->loop_io * mh_ns(batch->step), blocked);
    out->main_blocked = out->main_blocked > io ? out->main_blocked : io;
    out->train_cpu = cpu - out->main_cpu;
    out->train_blocked = blocked - out->main_blocked;
}

void mh_costs_of(mh_costs *out, const mh_costing *costing, const mh_batch_cost *batch)
{
    *out = (mh_costs){0};
    cost_making(out, costing, batch);
    cost_step(out, costing, batch);
    if (batch->first) {
        double making = out->fetch_cpu + out->read_cpu + out->fetch_blocked + out->fetch_delay +
                        out->collate_cpu + out->collate_blocked + out->collate_delay +
                        out->transfer + out->transfer_delay + out->passing + out->unknown;
        out->startup = above_zero(mh_ns(batch->wait) - making);
    }
}

double mh_excess(const mh_batch_cost *batch)
{
    return above_zero(mh_ns(batch->fetch_excess) - mh_ns(batch->fetch_delay));
}

double mh_cpus_left(const mh_facts *facts)
{
    const mh_usage_sum *usage = &facts->usage;
    double allowed = facts->cpus > 0 ? facts->cpus : 0;
    if (!usage->wall_ns || allowed == 0)
        return allowed;
    double machine = usage->machine_cpus > allowed ? usage->machine_cpus : allowed;
    double left = machine - above_zero(usage->busy_cpus - usage->loader_cpus);
    double least = allowed / 2 > 1 ? allowed / 2 : 1;
    return left < least ? least : smaller(left, allowed);
}
