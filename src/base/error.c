/* error.c - filling an mh_error, and the names of the status codes
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const status_names[] = {
#define MH_STATUS_NAME(code, name, exception) name,
    MH_STATUS_LIST(MH_STATUS_NAME)
#undef MH_STATUS_NAME
};

static const char *const status_exceptions[] = {
#define MH_STATUS_EXCEPTION(code, name, exception) #exception,
    MH_STATUS_LIST(MH_STATUS_EXCEPTION)
#undef MH_STATUS_EXCEPTION
};

const char *mh_status_name(mh_status status)
{
    /* unsigned, so that a negative value from a careless cast is out of range too */
    return (unsigned)status < MH_STATUS_COUNT ? status_names[status] : "unknown status";
}

const char *mh_status_exception(mh_status status)
{
    return (unsigned)status < MH_STATUS_COUNT ? status_exceptions[status] : "Error";
}

static MH_PRINTF(4, 0) void error_fill(mh_error *err, mh_status code, int sys_errno,
                                       const char *format, va_list arguments)
{
    err->code = code;
    err->sys_errno = sys_errno;
    err->place = (mh_place){.sample = MH_NOWHERE, .unit = MH_NOWHERE, .offset = MH_NOWHERE};
    if (vsnprintf(err->message, sizeof err->message, format, arguments) < 0)
        err->message[0] = '\0';
}

mh_status mh_fail(mh_error *err, mh_status code, const char *format, ...)
{
    if (err) {
        va_list arguments;
        va_start(arguments, format);
        error_fill(err, code, 0, format, arguments);
        va_end(arguments);
    }
    return code;
}

mh_status mh_fail_sys(mh_error *err, mh_status code, int sys_errno, const char *format, ...)
{
    if (err) {
        char reason[128];
        va_list arguments;
        va_start(arguments, format);
        error_fill(err, code, sys_errno, format, arguments);
        va_end(arguments);
        size_t used = strlen(err->message);
        /* strerror_r, because plain strerror shares one buffer between threads */
        (void)snprintf(err->message + used, sizeof err->message - used, ": %s",
                       strerror_r(sys_errno, reason, sizeof reason));
    }
    return code;
}

void mh_error_prefix(mh_error *err, const char *format, ...)
{
    if (!err)
        return;
    char place[sizeof err->message];
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(place, sizeof place, format, arguments);
    va_end(arguments);
    if (wanted < 0)
        return;
    /* The place may take half of the room at most: a long path must not push out the reason. */
    size_t most = sizeof err->message / 2 - 2;
    size_t length = (size_t)wanted < most ? (size_t)wanted : most;
    size_t shift = length + 2;
    size_t kept = strnlen(err->message, sizeof err->message - 1);
    if (kept > sizeof err->message - 1 - shift)
        kept = sizeof err->message - 1 - shift;
    memmove(err->message + shift, err->message, kept);
    memcpy(err->message, place, length);
    memcpy(err->message + length, ": ", 2);
    err->message[shift + kept] = '\0';
}

mh_status mh_error_at(mh_error *err, mh_status code, const char *source, uint64_t offset)
{
    if (!err)
        return code;
    size_t length = strlen(source), most = sizeof err->place.source - 1;
    (void)snprintf(err->place.source, sizeof err->place.source, "%s",
                   source + (length > most ? length - most : 0));
    err->place.offset = offset;
    return code;
}

void mh_error_at_sample(mh_error *err, uint64_t sample)
{
    mh_error_prefix(err, "sample %llu", (unsigned long long)sample);
    if (err)
        err->place.sample = sample;
}
