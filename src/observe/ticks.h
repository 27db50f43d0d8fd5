/* ticks.h - a clock that has the main thread say, every few milliseconds, where it is
 * SPDX-License-Identifier: Apache-2.0
 *
 * Where it computes, native_share.h's timer of CPU time tells when to look. Where it is blocked, a
 * thread of its own asks, and the main thread answers when it comes back: an interpreter does so
 * between two of its instructions, in the function that made the call. Nothing is interrupted, so
 * no system call of the program fails with EINTR, and nobody waits for the interpreter's lock.
 *
 * There is one main thread, so there is one such clock in a process. mh_ticks_start and
 * mh_ticks_stop are the main thread's; so is mh_ticks_answer.
 */
#ifndef MH_OBSERVE_TICKS_H
#define MH_OBSERVE_TICKS_H

#include <stdbool.h>
#include <stdint.h>

/* What the main thread does; nobody is asked in MH_STAGE_NONE. */
typedef enum mh_stage {
    MH_STAGE_NONE,
    MH_STAGE_FETCH,   /* makes the samples of a batch */
    MH_STAGE_COLLATE, /* makes the batch of them */
    MH_STAGE_LOOP,    /* works on a batch it was given */
    MH_STAGE_TRAIN,   /* of it, what is known to be training */
    MH_STAGE_COUNT
} mh_stage;

/* Starts the clock, unless it runs. `ask`, on the clock's thread, has the main thread call
 * mh_ticks_answer soon; not 0: it cannot now. False: there is no thread to be had. */
bool mh_ticks_start(int (*ask)(void));
void mh_ticks_stop(void);

/* What the main thread does from now on. One store. */
void mh_ticks_stage(mh_stage stage);

/* The main thread computed for `cpu_ns` since it was last told here: whether it is time to look,
 * the stage, and the time that the look stands for. */
bool mh_ticks_computed(uint64_t cpu_ns, mh_stage *stage, uint64_t *ns);

/* The main thread answers: the stage it was asked in, and the time that the answer stands for.
 * False: the question is from before a fork, or of another stage than this one. */
bool mh_ticks_answer(mh_stage *stage, uint64_t *ns);

#endif
