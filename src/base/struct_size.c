/* struct_size.c - structs that begin with struct_size, as another version may know them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/struct_size.h"

#include "base/error.h"
#include <string.h>

#define MOST_BYTES ((size_t)1 << 16) /* more is memory that nobody has initialised */

static size_t size_of(const void *given)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

mh_status mh_sized_check(const void *given, size_t least, const char *type, mh_error *err)
{
    size_t size = size_of(given);
    if (size < least || size > MOST_BYTES)
        return mh_fail(err, MH_ERR_INVALID,
                       "struct_size of %s is %zu, expected %zu or a little more: call %s_init",
                       type, size, least, type);
    return MH_OK;
}

mh_status mh_sized_read(void *whole, size_t size, const void *given, size_t least, const char *type,
                        mh_error *err)
{
    MH_TRY(mh_sized_check(given, least, type, err));
    size_t given_size = size_of(given);
    const char *bytes = given;
    for (size_t at = size; at < given_size; at++)
        if (bytes[at])
            return mh_fail(err, MH_ERR_UNSUPPORTED,
                           "%s has a field set that this version of the library does not know: "
                           "install a newer one",
                           type);
    memcpy(whole, given, given_size < size ? given_size : size);
    memcpy(whole, &size, sizeof size);
    return MH_OK;
}

void mh_sized_write(void *given, size_t given_size, const void *whole, size_t size)
{
    if (given_size < sizeof(size_t))
        return; /* no room even for the size */
    memcpy(given, whole, given_size < size ? given_size : size);
    if (given_size > size)
        memset((char *)given + size, 0, given_size - size);
    memcpy(given, &given_size, sizeof given_size);
}
