/* pickle_parts.c - a pickled result as it lies in a worker's spill memory
 * SPDX-License-Identifier: Apache-2.0
 */
#include "workers/pickle_parts.h"

#include "base/error.h"

#include <string.h>

/* What the memory holds of each part, after the number of parts. */
typedef struct entry {
    uint64_t kind;
    uint64_t bytes;
} entry;

#define HEAD_BYTES sizeof(uint64_t)

static uint64_t aligned(uint64_t offset)
{
    return (offset + 63) / 64 * 64;
}

static uint64_t first_part(uint64_t count)
{
    return aligned(HEAD_BYTES + count * sizeof(entry));
}

uint64_t mh_pickle_parts_bytes(const mh_pickle_part *parts, uint64_t count)
{
    uint64_t bytes = first_part(count);
    for (uint64_t i = 0; i < count; i++)
        bytes = aligned(bytes + parts[i].bytes);
    return bytes;
}

void mh_pickle_parts_write(uint8_t *to, const mh_pickle_part *parts, uint64_t count)
{
    uint64_t at = first_part(count);
    memcpy(to, &count, sizeof count);
    for (uint64_t i = 0; i < count; i++) {
        const entry about = {parts[i].kind, parts[i].bytes};
        memcpy(to + HEAD_BYTES + i * sizeof about, &about, sizeof about);
        if (about.bytes)
            memcpy(to + at, parts[i].data, (size_t)about.bytes);
        at = aligned(at + about.bytes);
    }
}

mh_status mh_pickle_parts_open(mh_pickle_reader *reader, const uint8_t *base, uint64_t bytes,
                               mh_error *err)
{
    uint64_t count = 0;
    if (bytes >= HEAD_BYTES)
        memcpy(&count, base, sizeof count);
    if (bytes < HEAD_BYTES || count > (bytes - HEAD_BYTES) / sizeof(entry))
        return mh_fail(err, MH_ERR_INTERNAL, "a result of too many parts");
    *reader =
        (mh_pickle_reader){.base = base, .bytes = bytes, .count = count, .at = first_part(count)};
    return MH_OK;
}

mh_status mh_pickle_parts_next(mh_pickle_reader *reader, mh_pickle_part *out, mh_error *err)
{
    entry about; /* out of the other process's reach before it is checked */
    memcpy(&about, reader->base + HEAD_BYTES + reader->next * sizeof about, sizeof about);
    if (reader->at > reader->bytes || about.bytes > reader->bytes - reader->at)
        return mh_fail(err, MH_ERR_INTERNAL, "a result that is cut short");
    *out = (mh_pickle_part){about.kind, about.bytes, reader->base + reader->at};
    reader->next++;
    reader->at = aligned(reader->at + about.bytes);
    return MH_OK;
}
