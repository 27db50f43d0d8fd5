/* fork_chain.h - forking several children from one snapshot of this process
 * SPDX-License-Identifier: Apache-2.0
 *
 * A fork copies the page tables of the whole process: milliseconds, in which the caller can do
 * nothing else. Here it forks twice, however many children there are to be. Child 0 begins at once.
 * Child 1 forks child 2 before it does anything of its own, that one child 3, and so on: all see
 * the process as it was, and all are the caller's own children (CLONE_PARENT), as if it had forked
 * each.
 *
 *     caller    fork, fork ------------> goes on
 *     child 0     `-----|--------------> its work
 *     child 1           `-> fork ------> its work
 *     child 2                 `-> fork > its work
 */
#ifndef MH_SYS_FORK_CHAIN_H
#define MH_SYS_FORK_CHAIN_H

#include <millhead/error.h>
#include <stdbool.h>

typedef struct mh_chain mh_chain;

/* A chain of `children` (at least 1), none forked yet. Errors: MH_ERR_NOMEM. Free it with
 * mh_chain_free, which ends no child. */
MH_MUST_CHECK mh_status mh_chain_new(mh_chain **out, int children, mh_error *err);

/* Forks; once per chain. Returns in the caller with *out_number -1, and in every child with its
 * number, once that has forked the next one. All that fork() says about other threads holds.
 * Errors, in the caller only: MH_ERR_UNSUPPORTED where children cannot be forked this way,
 * MH_ERR_IO when the first one cannot be forked. */
MH_MUST_CHECK mh_status mh_chain_fork(mh_chain *chain, int *out_number, mh_error *err);

/* The process of a child, 0 while it is not forked yet, or a negative errno when it could not be
 * (ECANCELED: the chain was stopped before; EINVAL, ENOSYS, EPERM: not by this kernel). It stays 0
 * when a child before it was killed before it forked the next one. The process exists until the
 * caller waits for it. Any thread. */
int mh_chain_pid(const mh_chain *chain, int number);

/* Whether a child that was forked by another has found itself to be the caller's. Any thread. */
bool mh_chain_proven(const mh_chain *chain);

/* Child 1 waits a few milliseconds before it goes on, because the caller may want no more than
 * child 0 after all. This ends the wait. Any thread. */
void mh_chain_hurry(mh_chain *chain);

/* No more children: the one that would fork the next ends instead, with status 0. Any thread. */
void mh_chain_stop(mh_chain *chain);

/* NULL allowed. */
void mh_chain_free(mh_chain *chain);

#endif
