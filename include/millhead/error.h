/* error.h - status codes and the error struct every fallible call fills
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_ERROR_H
#define MILLHEAD_ERROR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MH_API __attribute__((visibility("default")))
#define MH_MUST_CHECK __attribute__((warn_unused_result))
#define MH_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define MH_API
#define MH_MUST_CHECK
#define MH_PRINTF(text, first)
#endif

/* One list: code, name as users see it, Python exception (built in; Error is millhead.Error, whose
 * `code` is the name). MH_END and MH_AGAIN are not errors. */
#define MH_STATUS_LIST(X)                                                                          \
    X(MH_OK, "ok", Error)                                                                          \
    X(MH_END, "end", StopIteration)                                                                \
    X(MH_AGAIN, "not yet", Error)                                                                  \
    X(MH_ERR_INVALID, "invalid argument", ValueError)                                              \
    X(MH_ERR_NOT_FOUND, "not found", FileNotFoundError)                                            \
    X(MH_ERR_NOMEM, "out of memory", MemoryError)                                                  \
    X(MH_ERR_IO, "input or output failed", OSError)                                                \
    X(MH_ERR_CORRUPT, "corrupt data", Error)                                                       \
    X(MH_ERR_UNSUPPORTED, "not supported", Error)                                                  \
    X(MH_ERR_CLOSED, "closed", Error)                                                              \
    X(MH_ERR_FORKED, "used after a fork", Error)                                                   \
    X(MH_ERR_TIMEOUT, "timed out", TimeoutError)                                                   \
    X(MH_ERR_INTERNAL, "internal error", Error)

typedef enum mh_status {
#define MH_STATUS_ENUM(code, name, exception) code,
    MH_STATUS_LIST(MH_STATUS_ENUM)
#undef MH_STATUS_ENUM
        MH_STATUS_COUNT
} mh_status;

/* Where something failed, as far as it is known. */
#define MH_NOWHERE UINT64_MAX
typedef struct mh_place {
    uint64_t sample;  /* its number in the dataset, or MH_NOWHERE */
    uint64_t unit;    /* the chunk or file among the dataset's, or MH_NOWHERE */
    uint64_t offset;  /* byte of the source, or MH_NOWHERE */
    char source[256]; /* path or URL, the end of a longer one; "": not known */
} mh_place;

/* Owned by the caller, passed as the last argument, copied by value; NULL is always allowed.
 * The function that detects a failure writes the message; callers pass it on or add the place. The
 * message names the place too.
 */
typedef struct mh_error {
    mh_status code;
    int sys_errno; /* errno at the failure, or 0 */
    char message[512];
    mh_place place;
} mh_error;

/* The status as users see it ("out of memory"); never NULL, any value accepted. Any thread. */
MH_API const char *mh_status_name(mh_status status);

/* The Python exception a status becomes ("MemoryError"); never NULL. Any thread. */
MH_API const char *mh_status_exception(mh_status status);

/* The one of `count` known words that a misspelt one most likely stands for, the first of several;
 * NULL: none is near enough. What is returned is known[i]. Any thread. */
MH_API const char *mh_nearest_word(const char *word, const char *const *known, size_t count);

#ifdef __cplusplus
}
#endif
#endif
