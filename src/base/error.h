/* error.h - filling an mh_error: the detecting function writes, callers pass on
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_BASE_ERROR_H
#define MH_BASE_ERROR_H

#include <millhead/error.h>

/* Writes code and message into *err (may be NULL) and returns code. sys_errno becomes 0. */
mh_status mh_fail(mh_error *err, mh_status code, const char *format, ...) MH_PRINTF(3, 4);

/* The same for a failed system call: keeps sys_errno and appends ": <strerror>". */
mh_status mh_fail_sys(mh_error *err, mh_status code, int sys_errno, const char *format, ...)
    MH_PRINTF(4, 5);

/* Puts the place in front of a message already there: "worker 3: <message>". */
void mh_error_prefix(mh_error *err, const char *format, ...) MH_PRINTF(2, 3);

/* Says where a failure was that is already in *err: in that source, at that byte (or MH_NOWHERE).
 * Returns its code. The message stays as it is. err may be NULL. */
mh_status mh_error_at(mh_error *err, mh_status code, const char *source, uint64_t offset);

/* Says which sample failed, in the message too. err may be NULL. */
void mh_error_at_sample(mh_error *err, uint64_t sample);

/* Passes a failure on. */
#define MH_TRY(call)                                                                               \
    do {                                                                                           \
        mh_status mh_try_status = (call);                                                          \
        if (mh_try_status != MH_OK)                                                                \
            return mh_try_status;                                                                  \
    } while (0)

#endif
