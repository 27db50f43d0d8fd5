/* struct_size.h - structs that begin with struct_size, as another version may know them
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_BASE_STRUCT_SIZE_H
#define MH_BASE_STRUCT_SIZE_H

#include <millhead/error.h>
#include <stdalign.h>

/* The size of a struct whose last field is `last`: what the first version of it had. */
#define MH_FIRST_SIZE(type, last)                                                                  \
    ((offsetof(type, last) + sizeof(((type *)0)->last) + alignof(type) - 1) / alignof(type) *      \
     alignof(type))

/* Whether the caller's struct says that it is at least the first version. `type` is its name, and
 * type_init the function that fills it. Errors: MH_ERR_INVALID. */
MH_MUST_CHECK mh_status mh_sized_check(const void *given, size_t least, const char *type,
                                       mh_error *err);

/* Reads the caller's struct over the defaults in *whole, which is ours and of `size` bytes: fields
 * that the caller does not know keep their defaults. Errors: MH_ERR_INVALID (too small),
 * MH_ERR_UNSUPPORTED (the caller sets fields that we do not know). */
MH_MUST_CHECK mh_status mh_sized_read(void *whole, size_t size, const void *given, size_t least,
                                      const char *type, mh_error *err);

/* Writes what a caller's struct of given_size bytes has room for; what is behind ours becomes 0. */
void mh_sized_write(void *given, size_t given_size, const void *whole, size_t size);

/* Defaults, then the caller's. `last` is the last field of the first version. */
#define MH_SIZED_TAKE(whole, given, type, last, err)                                               \
    (type##_init(whole),                                                                           \
     mh_sized_read(whole, sizeof(type), given, MH_FIRST_SIZE(type, last), #type, err))

#endif
