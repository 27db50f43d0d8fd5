/* native_share.h - is it the interpreter that keeps the main thread busy, or native code?
 * SPDX-License-Identifier: Apache-2.0
 *
 * After every few milliseconds of CPU time of the main thread a timer sends it a signal. An
 * interpreter calls the handler of a signal between two of its instructions; the CPU time spent
 * until then shows what the thread was in: interpreted code comes to it within microseconds, a
 * decoder when it is done.
 *
 * A timer of CPU time fires only while the thread runs, so it wakes nobody, and what is blocked or
 * waits for a CPU is not counted. There is one main thread, so there is one such timer; all calls
 * but mh_native_share_runs and mh_native_share_again are that thread's.
 */
#ifndef MH_OBSERVE_NATIVE_SHARE_H
#define MH_OBSERVE_NATIVE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/* The signal that it uses. */
int mh_native_share_signal(void);

/* Whether it runs, in this process: timers do not survive a fork. */
bool mh_native_share_runs(void);

/* Where it runs: ends a pause, and comes before a handler that was set meanwhile. False in another
 * thread than the one that started it. */
bool mh_native_share_again(void);

/* Begins to look at the calling thread. The handler the signal has now, which must be there, has
 * mh_native_share_answer called soon. False where that cannot be. */
bool mh_native_share_start(void);
void mh_native_share_stop(void);

/* The signal is handled: counts what the thread was in and sets the timer anew. The CPU time that
 * this answer stands for, in ns; 0: none. */
uint64_t mh_native_share_answer(void);

/* Only what is between the two is looked at. Nothing where it does not run. */
void mh_native_share_resume(void);
void mh_native_share_pause(void);

/* Since the last call: how often it was looked, and how often the thread was in native code. */
void mh_native_share_counts(uint64_t *probes, uint64_t *native);

#endif
