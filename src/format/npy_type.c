/* npy_type.c - NumPy's names of types: "<f4", ">M8[ns]", "|S7"
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "format/npy_header.h"

#include <stdbool.h>
#include <stdlib.h>

static mh_status not_a_type(const char *type, mh_error *err)
{
    return mh_fail(err, MH_ERR_CORRUPT, "npy header: '%s' is not a type", type);
}

static mh_status type_size(const char *type, uint32_t *out, mh_error *err)
{
    char *end;
    unsigned long size = strtoul(type + 2, &end, 10);
    if (type[2] < '0' || type[2] > '9' || size > UINT32_MAX / 4)
        return not_a_type(type, err);
    *out = (uint32_t)size;
    return MH_OK;
}

static bool is_number(char kind, uint32_t size, uint8_t *out_code)
{
    static const struct {
        char kind;
        uint8_t code;
        uint32_t least, most;
    } kinds[] = {{'i', 0, 1, 8}, {'u', 1, 1, 8}, {'f', 2, 2, 8}, {'c', 5, 8, 16}, {'b', 6, 1, 1}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == kind) {
            *out_code = kinds[i].code;
            return size >= kinds[i].least && size <= kinds[i].most && (size & (size - 1)) == 0;
        }
    return false;
}

/* Bytes, with a dimension of their own unless there is just one. */
static void set_bytes(mh_npy_member *out, uint64_t count)
{
    out->dtype = (mh_dtype){.code = 1, .bits = 8};
    if (count == 1)
        return;
    out->dims = 1;
    out->shape[0] = (int64_t)count;
    out->strides[0] = 1;
}

mh_status mh_npy_type_read(mh_npy_member *out, uint64_t *out_bytes, const char *type, mh_error *err)
{
    uint32_t size = 0;
    char kind = type[0] ? type[1] : '\0';
    bool other = type[0] == '>';
    if (!kind)
        return not_a_type(type, err);
    if (kind == 'O')
        return mh_fail(err, MH_ERR_UNSUPPORTED, "npy array of Python objects (%s)", type);
    MH_TRY(type_size(type, &size, err));
    *out_bytes = size;
    out->dims = 0;
    out->swap = 1;
    switch (kind) {
    case 'M': /* datetime64[unit] */
    case 'm':
        if (size != 8)
            return not_a_type(type, err);
        out->dtype = (mh_dtype){.code = 0, .bits = 64};
        break;
    case 'U': /* four bytes a character */
        *out_bytes = (uint64_t)size * 4;
        out->swap = other ? 4 : 1;
        set_bytes(out, *out_bytes);
        return MH_OK;
    case 'S':
    case 'V':
        set_bytes(out, size);
        return MH_OK;
    default:
        if (!is_number(kind, size, &out->dtype.code))
            return mh_fail(err, MH_ERR_UNSUPPORTED, "npy array of type %s", type);
        out->dtype.bits = (uint8_t)(size * 8);
    }
    if (other) /* a complex number is two */
        out->swap = (uint8_t)(kind == 'c' ? size / 2 : size);
    return MH_OK;
}
