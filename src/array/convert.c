/* convert.c - rows of stored values made into delivered ones
 * SPDX-License-Identifier: Apache-2.0
 *
 * Values that need no arithmetic are copied, with their bytes reversed where needed. Others go
 * through a small buffer that stays in the first cache: gathered, made float32, float64 or int64,
 * worked on, and stored. Each step is a loop over plain arrays, which compilers turn into vector
 * code, and there is one for each type instead of one for each pair.
 */
#include "array/convert.h"

#include "array/half.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

/* gcc's -O2 leaves loops of unknown length as they are. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define BUFFERED 512 /* values: three buffers of 4 KiB */

enum { INT, UINT, FLOAT, BFLOAT = 4, COMPLEX, BOOL }; /* DLPack's codes */

/* --- gathering: bytes together, in this machine's order --- */

/* Called with constant steps where values lie together, so that those loops become vector code. */
#define GATHER(bits, reverse, name)                                                                \
    static inline __attribute__((always_inline)) void name##_apart(                                \
        const uint8_t *from, uint64_t step, uint8_t *into, uint64_t into_step, uint64_t count)     \
    {                                                                                              \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            uint##bits##_t value;                                                                  \
            memcpy(&value, from + i * step, sizeof value);                                         \
            value = reverse(value);                                                                \
            memcpy(into + i * into_step, &value, sizeof value);                                    \
        }                                                                                          \
    }                                                                                              \
    static void name(const uint8_t *from, uint64_t step, uint8_t *into, uint64_t into_step,        \
                     uint64_t count)                                                               \
    {                                                                                              \
        if (into_step != (bits) / 8)                                                               \
            name##_apart(from, step, into, into_step, count);                                      \
        else if (step != (bits) / 8)                                                               \
            name##_apart(from, step, into, (bits) / 8, count);                                     \
        else                                                                                       \
            name##_apart(from, (bits) / 8, into, (bits) / 8, count);                               \
    }
#define KEPT(value) (value)
GATHER(8, KEPT, gather_1)
GATHER(16, KEPT, gather_2)
GATHER(32, KEPT, gather_4)
GATHER(64, KEPT, gather_8)
GATHER(16, __builtin_bswap16, reverse_2)
GATHER(32, __builtin_bswap32, reverse_4)
GATHER(64, __builtin_bswap64, reverse_8)

typedef void gather_values(const uint8_t *from, uint64_t step, uint8_t *into, uint64_t into_step,
                           uint64_t count);

static gather_values *gather_of(uint32_t bytes, int reversed)
{
    switch (bytes) {
    case 1:
        return gather_1;
    case 2:
        return reversed ? reverse_2 : gather_2;
    case 4:
        return reversed ? reverse_4 : gather_4;
    default:
        return reversed ? reverse_8 : gather_8;
    }
}

/* A complex number is two parts, each in its own byte order; they may lie together in `step`. */
static void gather(const mh_convert *self, const uint8_t *from, uint64_t step, uint8_t *into,
                   uint64_t count)
{
    const uint32_t bytes = self->stored_bytes, part = self->part_bytes;
    if (step == bytes && !self->reversed) {
        memcpy(into, from, count * bytes);
        return;
    }
    gather_values *values = gather_of(part, self->reversed);
    if (step == bytes) {
        values(from, part, into, part, count * (bytes / part));
        return;
    }
    for (uint32_t at = 0; at < bytes; at += part)
        values(from + at, step, into + at, bytes, count);
}

static void row_as_stored(const mh_convert *self, const uint8_t *from, uint64_t step, uint8_t *into,
                          uint64_t count)
{
    gather(self, from, step, into, count);
}

/* --- loading: stored types into the work's --- */

#define LOAD(stored, work)                                                                         \
    static void load_##stored##_##work(const uint8_t *from, work *into, uint64_t count)            \
    {                                                                                              \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            stored value;                                                                          \
            memcpy(&value, from + i * sizeof value, sizeof value);                                 \
            into[i] = (work)value;                                                                 \
        }                                                                                          \
    }
#define LOADS(work)                                                                                \
    LOAD(int8_t, work)                                                                             \
    LOAD(int16_t, work)                                                                            \
    LOAD(int32_t, work)                                                                            \
    LOAD(int64_t, work)                                                                            \
    LOAD(uint8_t, work)                                                                            \
    LOAD(uint16_t, work)                                                                           \
    LOAD(uint32_t, work)                                                                           \
    LOAD(uint64_t, work)                                                                           \
    LOAD(float, work)                                                                              \
    LOAD(double, work)                                                                             \
    static void load_half_##work(const uint8_t *from, work *into, uint64_t count)                  \
    {                                                                                              \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            uint16_t value;                                                                        \
            memcpy(&value, from + i * 2, 2);                                                       \
            into[i] = (work)mh_half_to_float(value);                                               \
        }                                                                                          \
    }                                                                                              \
    static void load_##work(mh_dtype stored, const uint8_t *from, work *into, uint64_t count)      \
    {                                                                                              \
        switch (stored.code << 8 | stored.bits) {                                                  \
        case INT << 8 | 8:                                                                         \
            load_int8_t_##work(from, into, count);                                                 \
            break;                                                                                 \
        case INT << 8 | 16:                                                                        \
            load_int16_t_##work(from, into, count);                                                \
            break;                                                                                 \
        case INT << 8 | 32:                                                                        \
            load_int32_t_##work(from, into, count);                                                \
            break;                                                                                 \
        case INT << 8 | 64:                                                                        \
            load_int64_t_##work(from, into, count);                                                \
            break;                                                                                 \
        case BOOL << 8 | 8:                                                                        \
        case UINT << 8 | 8:                                                                        \
            load_uint8_t_##work(from, into, count);                                                \
            break;                                                                                 \
        case UINT << 8 | 16:                                                                       \
            load_uint16_t_##work(from, into, count);                                               \
            break;                                                                                 \
        case UINT << 8 | 32:                                                                       \
            load_uint32_t_##work(from, into, count);                                               \
            break;                                                                                 \
        case UINT << 8 | 64:                                                                       \
            load_uint64_t_##work(from, into, count);                                               \
            break;                                                                                 \
        case FLOAT << 8 | 16:                                                                      \
            load_half_##work(from, into, count);                                                   \
            break;                                                                                 \
        case FLOAT << 8 | 32:                                                                      \
            load_float_##work(from, into, count);                                                  \
            break;                                                                                 \
        default:                                                                                   \
            load_double_##work(from, into, count);                                                 \
        }                                                                                          \
    }
LOADS(float)
LOADS(double)
LOADS(int64_t)

/* --- the work --- */

#define WORK(type)                                                                                 \
    static void mask_##type(const mh_convert *self, type *values, uint64_t count)                  \
    {                                                                                              \
        for (uint32_t k = 0; k < self->fill_count; k++) {                                          \
            const type fill = (type)self->fills[k];                                                \
            for (uint64_t i = 0; i < count; i++)                                                   \
                values[i] = values[i] == fill ? (type)NAN : values[i];                             \
        }                                                                                          \
    }                                                                                              \
    static void unpack_##type(const mh_convert *self, type *values, uint64_t count)                \
    {                                                                                              \
        const type scale = (type)self->scale_value, offset = (type)self->offset_value;             \
        for (uint64_t i = 0; i < count && self->scale && !self->scale_wide; i++)                   \
            values[i] *= scale;                                                                    \
        for (uint64_t i = 0; i < count && self->scale && self->scale_wide; i++)                    \
            values[i] = (type)((double)values[i] * self->scale_value);                             \
        for (uint64_t i = 0; i < count && self->offset && !self->offset_wide; i++)                 \
            values[i] += offset;                                                                   \
        for (uint64_t i = 0; i < count && self->offset && self->offset_wide; i++)                  \
            values[i] = (type)((double)values[i] + self->offset_value);                            \
    }                                                                                              \
    static void finish_##type(const mh_convert *self, type *values, uint64_t count)                \
    {                                                                                              \
        const type mean = (type)self->mean, std = (type)self->std, nan = (type)self->nan_value;    \
        for (uint64_t i = 0; i < count && self->normalise; i++)                                    \
            values[i] = (values[i] - mean) / std;                                                  \
        for (uint64_t i = 0; i < count && self->fill_nan; i++)                                     \
            values[i] = values[i] == values[i] ? values[i] : nan;                                  \
    }
WORK(float)
WORK(double)

/* In int64 there are no NaNs, and only a whole scale_factor is worked with, wrapping as NumPy's. */
static void unpack_int64_t(const mh_convert *self, int64_t *values, uint64_t count)
{
    const uint64_t scale = (uint64_t)(int64_t)self->scale_value;
    for (uint64_t i = 0; i < count && self->scale; i++)
        values[i] = (int64_t)((uint64_t)values[i] * scale);
}

/* --- storing: the work's type into the delivered one --- */

/* Out of range there is no right answer; NumPy's depends on the machine. Here: the nearest, and 0
 * for NaN. */
#define STORE_FROM_FLOAT(work, delivered, low, high)                                               \
    static void store_##work##_##delivered(const work *from, uint8_t *into, uint64_t count)        \
    {                                                                                              \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            const work x = from[i];                                                                \
            const delivered value = x != x            ? 0                                          \
                                    : x <= (work)low  ? (delivered)(low)                           \
                                    : x >= (work)high ? (delivered)(high)                          \
                                                      : (delivered)x;                              \
            memcpy(into + i * sizeof value, &value, sizeof value);                                 \
        }                                                                                          \
    }
#define STORE(work, delivered)                                                                     \
    static void store_##work##_##delivered(const work *from, uint8_t *into, uint64_t count)        \
    {                                                                                              \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            const delivered value = (delivered)from[i];                                            \
            memcpy(into + i * sizeof value, &value, sizeof value);                                 \
        }                                                                                          \
    }
#define STORE_HALF(work, half_of)                                                                  \
    static void store_##work##_half(const work *from, uint8_t *into, uint64_t count)               \
    {                                                                                              \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            const uint16_t value = half_of(from[i]);                                               \
            memcpy(into + i * 2, &value, 2);                                                       \
        }                                                                                          \
    }
#define STORES(work)                                                                               \
    STORE(work, float)                                                                             \
    STORE(work, double)                                                                            \
    static void store_##work(mh_dtype delivered, const work *from, uint8_t *into, uint64_t count)  \
    {                                                                                              \
        switch (delivered.code << 8 | delivered.bits) {                                            \
        case INT << 8 | 8:                                                                         \
            store_##work##_int8_t(from, into, count);                                              \
            break;                                                                                 \
        case INT << 8 | 16:                                                                        \
            store_##work##_int16_t(from, into, count);                                             \
            break;                                                                                 \
        case INT << 8 | 32:                                                                        \
            store_##work##_int32_t(from, into, count);                                             \
            break;                                                                                 \
        case INT << 8 | 64:                                                                        \
            store_##work##_int64_t(from, into, count);                                             \
            break;                                                                                 \
        case UINT << 8 | 8:                                                                        \
            store_##work##_uint8_t(from, into, count);                                             \
            break;                                                                                 \
        case UINT << 8 | 16:                                                                       \
            store_##work##_uint16_t(from, into, count);                                            \
            break;                                                                                 \
        case UINT << 8 | 32:                                                                       \
            store_##work##_uint32_t(from, into, count);                                            \
            break;                                                                                 \
        case UINT << 8 | 64:                                                                       \
            store_##work##_uint64_t(from, into, count);                                            \
            break;                                                                                 \
        case FLOAT << 8 | 16:                                                                      \
            store_##work##_half(from, into, count);                                                \
            break;                                                                                 \
        case FLOAT << 8 | 32:                                                                      \
            store_##work##_float(from, into, count);                                               \
            break;                                                                                 \
        default:                                                                                   \
            store_##work##_double(from, into, count);                                              \
        }                                                                                          \
    }
#define STORES_FROM_FLOAT(work)                                                                    \
    STORE_FROM_FLOAT(work, int8_t, INT8_MIN, INT8_MAX)                                             \
    STORE_FROM_FLOAT(work, int16_t, INT16_MIN, INT16_MAX)                                          \
    STORE_FROM_FLOAT(work, int32_t, INT32_MIN, INT32_MAX)                                          \
    STORE_FROM_FLOAT(work, int64_t, INT64_MIN, INT64_MAX)                                          \
    STORE_FROM_FLOAT(work, uint8_t, 0, UINT8_MAX)                                                  \
    STORE_FROM_FLOAT(work, uint16_t, 0, UINT16_MAX)                                                \
    STORE_FROM_FLOAT(work, uint32_t, 0, UINT32_MAX)                                                \
    STORE_FROM_FLOAT(work, uint64_t, 0, UINT64_MAX)
STORES_FROM_FLOAT(float)
STORES_FROM_FLOAT(double)
STORE_HALF(float, mh_half_of_float)
STORE_HALF(double, mh_half_of_double)
STORES(float)
STORES(double)
STORE(int64_t, int8_t)
STORE(int64_t, int16_t)
STORE(int64_t, int32_t)
STORE(int64_t, int64_t)
STORE(int64_t, uint8_t)
STORE(int64_t, uint16_t)
STORE(int64_t, uint32_t)
STORE(int64_t, uint64_t)
#define HALF_OF_INTEGER(value) mh_half_of_double((double)(value))
STORE_HALF(int64_t, HALF_OF_INTEGER)
STORES(int64_t)

/* --- a row --- */

/* Values that lie together in this machine's order are loaded from where they are. */
#define ROW(work)                                                                                  \
    static void row_in_##work(const mh_convert *self, const uint8_t *from, uint64_t step,          \
                              uint8_t *into, uint64_t count)                                       \
    {                                                                                              \
        uint8_t gathered[BUFFERED * 8];                                                            \
        work values[BUFFERED];                                                                     \
        const int as_is = step == self->stored_bytes && !self->reversed;                           \
        for (uint64_t n; count > 0; count -= n, from += n * step) {                                \
            n = count < BUFFERED ? count : BUFFERED;                                               \
            if (!as_is)                                                                            \
                gather(self, from, step, gathered, n);                                             \
            load_##work(self->stored, as_is ? from : gathered, values, n);                         \
            mask_##work(self, values, n);                                                          \
            unpack_##work(self, values, n);                                                        \
            finish_##work(self, values, n);                                                        \
            store_##work(self->delivered, values, into, n);                                        \
            into += n * self->delivered_bytes;                                                     \
        }                                                                                          \
    }
ROW(float)
ROW(double)
#define mask_int64_t(self, values, count) (void)0
#define finish_int64_t(self, values, count) (void)0
ROW(int64_t)

/* --- choosing --- */

/* Where values only change their type, loading makes it the right one if it can. */
static mh_work work_for(mh_dtype stored, const mh_decoding *decoding, mh_dtype decoded)
{
    const mh_dtype to = decoded.code == FLOAT ? decoded : decoding->cast;
    if (decoded.code != FLOAT && to.code != FLOAT)
        return MH_WORK_INT64;
    if (stored.code == FLOAT && stored.bits == 64)
        return MH_WORK_FLOAT64;
    return to.bits == 64 ? MH_WORK_FLOAT64 : MH_WORK_FLOAT32;
}

static void take_decoding(mh_convert *self, const mh_decoding *decoding)
{
    const bool narrow = self->work == MH_WORK_FLOAT32;
    for (uint32_t i = 0; i < decoding->fill_count; i++)
        if (!narrow || (double)(float)decoding->fills[i] == decoding->fills[i])
            self->fills[self->fill_count++] = decoding->fills[i];
    self->scale = decoding->scale.type != MH_CF_ABSENT;
    self->scale_wide = narrow && decoding->scale.type == MH_CF_FLOAT64;
    self->scale_value = decoding->scale.value;
    self->offset = decoding->offset.type != MH_CF_ABSENT;
    self->offset_wide = narrow && decoding->offset.type == MH_CF_FLOAT64;
    self->offset_value = decoding->offset.value;
    self->normalise = decoding->normalise;
    self->mean = decoding->mean;
    self->std = decoding->std;
    self->fill_nan = decoding->fill_nan;
    self->nan_value = decoding->nan_value;
}

mh_status mh_convert_init(mh_convert *out, mh_dtype stored, int swapped,
                          const mh_decoding *decoding, mh_error *err)
{
    static mh_convert_row *const rows[] = {[MH_WORK_FLOAT32] = row_in_float,
                                           [MH_WORK_FLOAT64] = row_in_double,
                                           [MH_WORK_INT64] = row_in_int64_t};
    mh_decoding uncast = *decoding;
    mh_dtype decoded;
    mh_convert made = {.stored = stored, .stored_bytes = stored.bits / 8u};
    MH_TRY(mh_decoding_dtype(stored, decoding, &made.delivered, err));
    made.delivered_bytes = made.delivered.bits / 8u;
    made.part_bytes = stored.code == COMPLEX ? made.stored_bytes / 2 : made.stored_bytes;
    made.reversed = swapped && made.part_bytes > 1;
    made.row = row_as_stored;
    if (!mh_decoding_is_plain(stored, decoding)) {
        uncast.cast = (mh_dtype){0, 0};
        decoded = stored;
        if (stored.code != BOOL)
            MH_TRY(mh_decoding_dtype(stored, &uncast, &decoded, err));
        made.work = work_for(stored, decoding, decoded);
        made.row = rows[made.work];
        take_decoding(&made, decoding);
    }
    *out = made;
    return MH_OK;
}
