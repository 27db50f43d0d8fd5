/* strided.c - values that lie apart, copied together row by row, their bytes turned where needed
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/strided.h"

#include <string.h>

mh_strided mh_strided_of(uint64_t value_bytes, uint32_t swap, uint32_t dims, const int64_t *shape,
                         const uint64_t *strides)
{
    mh_strided out = {.run = value_bytes, .swap = swap};
    for (uint32_t i = 0; i < dims; i++)
        if (shape[i] == 0)
            return (mh_strided){.swap = 1};
    for (uint32_t i = dims; i-- > 0;) {
        if (shape[i] == 1)
            continue;
        if (out.dims == 0 && strides[i] == out.run) {
            out.run *= (uint64_t)shape[i];
            continue;
        }
        out.shape[out.dims] = shape[i]; /* innermost first */
        out.strides[out.dims++] = strides[i];
    }
    return out;
}

static void copy_run(const uint8_t *from, uint8_t *into, uint64_t bytes, uint32_t swap)
{
    switch (swap) {
    case 2:
        for (uint64_t i = 0; i < bytes; i += 2) {
            uint16_t value;
            memcpy(&value, from + i, 2);
            value = __builtin_bswap16(value);
            memcpy(into + i, &value, 2);
        }
        break;
    case 4:
        for (uint64_t i = 0; i < bytes; i += 4) {
            uint32_t value;
            memcpy(&value, from + i, 4);
            value = __builtin_bswap32(value);
            memcpy(into + i, &value, 4);
        }
        break;
    case 8:
        for (uint64_t i = 0; i < bytes; i += 8) {
            uint64_t value;
            memcpy(&value, from + i, 8);
            value = __builtin_bswap64(value);
            memcpy(into + i, &value, 8);
        }
        break;
    default:
        memcpy(into, from, bytes);
    }
}

/* Runs of one number are the common case: a copy of known size is one instruction. */
static void copy_row(const mh_strided *values, const uint8_t *from, uint8_t *into)
{
    const uint64_t count = (uint64_t)values->shape[0], stride = values->strides[0];
    const uint64_t run = values->run;
    switch (values->swap == 1 ? run : 0) {
    case 1:
        for (uint64_t i = 0; i < count; i++)
            into[i] = from[i * stride];
        break;
    case 2:
        for (uint64_t i = 0; i < count; i++)
            memcpy(into + i * 2, from + i * stride, 2);
        break;
    case 4:
        for (uint64_t i = 0; i < count; i++)
            memcpy(into + i * 4, from + i * stride, 4);
        break;
    case 8:
        for (uint64_t i = 0; i < count; i++)
            memcpy(into + i * 8, from + i * stride, 8);
        break;
    default:
        for (uint64_t i = 0; i < count; i++)
            copy_run(from + i * stride, into + i * run, run, values->swap);
    }
}

/* Gives where the next values go. */
static uint8_t *copy_dims(const mh_strided *values, uint32_t dims, const uint8_t *from,
                          uint8_t *into)
{
    if (dims == 0) {
        copy_run(from, into, values->run, values->swap);
        return into + values->run;
    }
    if (dims == 1) {
        copy_row(values, from, into);
        return into + (uint64_t)values->shape[0] * values->run;
    }
    for (uint64_t i = 0; i < (uint64_t)values->shape[dims - 1]; i++)
        into = copy_dims(values, dims - 1, from + i * values->strides[dims - 1], into);
    return into;
}

void mh_strided_copy(const mh_strided *values, const uint8_t *from, uint8_t *into)
{
    if (values->run > 0)
        (void)copy_dims(values, values->dims, from, into);
}
