/* megatron_index.c - Megatron's .idx: where the documents of a .bin are
 * SPDX-License-Identifier: Apache-2.0
 *
 *     9   "MMIDIDX\0\0"
 *     8   version, 1
 *     1   code of the dtype
 *     8   sequences S
 *     8   entries D of the last list: documents + 1
 *     4S  int32 tokens of each sequence
 *     8S  int64 where each begins in the .bin, in bytes
 *     8D  int64 first sequence of each document, and S
 *     S   int8 modes, in files of several kinds of data only
 */
#include "format/megatron_index.h"

#include "base/error.h"

#include <string.h>

#define MAGIC "MMIDIDX\0\0"
#define MAGIC_BYTES 9u
#define HEAD_BYTES 34u

static uint64_t number_at(const uint8_t *bytes, uint32_t size)
{
    uint64_t number = 0;
    for (uint32_t i = size; i-- > 0;)
        number = number << 8 | bytes[i];
    return number;
}

static mh_status take_dtype(mh_dtype *out, uint8_t code, mh_error *err)
{
    static const mh_dtype known[] = {
        [1] = {1, 8}, [2] = {0, 8}, [3] = {0, 16}, [4] = {0, 32}, [5] = {0, 64}, [8] = {1, 16}};
    if (code >= sizeof known / sizeof *known || known[code].bits == 0)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "the index has the dtype %u: not integers", code);
    *out = known[code];
    return MH_OK;
}

/* Sequences lie one behind the other, from the first byte of the .bin to its last. */
static mh_status check_sequences(mh_megatron_index *self, const uint8_t *pointers,
                                 uint64_t bin_bytes, mh_error *err)
{
    const uint64_t token_bytes = self->dtype.bits / 8;
    uint64_t at = 0;
    for (uint64_t i = 0; i < self->sequences; i++) {
        const uint64_t length = number_at(self->lengths + i * 4, 4);
        if (length > INT32_MAX)
            return mh_fail(err, MH_ERR_CORRUPT, "sequence %llu of the index has a negative length",
                           (unsigned long long)i);
        if (number_at(pointers + i * 8, 8) != at)
            return mh_fail(err, MH_ERR_CORRUPT,
                           "sequence %llu of the index begins at byte %lld, and the one before it "
                           "ends at %llu",
                           (unsigned long long)i, (long long)number_at(pointers + i * 8, 8),
                           (unsigned long long)at);
        if (length * token_bytes > bin_bytes - at)
            return mh_fail(err, MH_ERR_CORRUPT,
                           "sequence %llu of the index ends beyond the %llu bytes of its .bin",
                           (unsigned long long)i, (unsigned long long)bin_bytes);
        at += length * token_bytes;
    }
    if (at != bin_bytes)
        return mh_fail(err, MH_ERR_CORRUPT,
                       "the index has %llu bytes of tokens and its .bin has %llu",
                       (unsigned long long)at, (unsigned long long)bin_bytes);
    self->tokens = at / token_bytes;
    return MH_OK;
}

static mh_status check_documents(const mh_megatron_index *self, mh_error *err)
{
    uint64_t before = 0;
    for (uint64_t i = 0; i <= self->documents; i++) {
        const uint64_t first = number_at(self->firsts + i * 8, 8);
        if (first < before || first > self->sequences || (i == 0 && first != 0) ||
            (i == self->documents && first != self->sequences))
            return mh_fail(
                err, MH_ERR_CORRUPT, "document %llu of the index begins with sequence %lld of %llu",
                (unsigned long long)i, (long long)first, (unsigned long long)self->sequences);
        before = first;
    }
    return MH_OK;
}

mh_status mh_megatron_index_read(mh_megatron_index *out, const uint8_t *bytes, size_t size,
                                 uint64_t bin_bytes, mh_error *err)
{
    mh_megatron_index made = {0};
    if (size < HEAD_BYTES || memcmp(bytes, MAGIC, MAGIC_BYTES) != 0)
        return mh_fail(err, MH_ERR_CORRUPT, "it does not begin as an index of Megatron does");
    if (number_at(bytes + 9, 8) != 1)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "the index has version %llu, and 1 is known",
                       (unsigned long long)number_at(bytes + 9, 8));
    MH_TRY(take_dtype(&made.dtype, bytes[17], err));
    made.sequences = number_at(bytes + 18, 8);
    const uint64_t entries = number_at(bytes + 26, 8), left = size - HEAD_BYTES;
    if (made.sequences > left / 12 || entries < 1 || entries > (left - made.sequences * 12) / 8)
        return mh_fail(err, MH_ERR_CORRUPT,
                       "the index has %llu bytes: too few for %llu sequences and %llu documents",
                       (unsigned long long)size, (unsigned long long)made.sequences,
                       (unsigned long long)entries);
    const uint64_t rest = left - made.sequences * 12 - entries * 8;
    if (rest != 0 && rest != made.sequences)
        return mh_fail(err, MH_ERR_CORRUPT, "the index has %llu bytes too many",
                       (unsigned long long)rest);
    made.documents = entries - 1;
    made.lengths = bytes + HEAD_BYTES;
    made.firsts = made.lengths + made.sequences * 12;
    MH_TRY(check_sequences(&made, made.lengths + made.sequences * 4, bin_bytes, err));
    MH_TRY(check_documents(&made, err));
    *out = made;
    return MH_OK;
}

uint64_t mh_megatron_document(const mh_megatron_index *self, uint64_t at)
{
    const uint64_t end = number_at(self->firsts + (at + 1) * 8, 8);
    uint64_t tokens = 0;
    for (uint64_t i = number_at(self->firsts + at * 8, 8); i < end; i++)
        tokens += number_at(self->lengths + i * 4, 4);
    return tokens;
}
