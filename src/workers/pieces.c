/* pieces.c - a pickled result as it lies in a worker's spill memory
 * SPDX-License-Identifier: Apache-2.0
 */
#include "workers/pieces.h"

#include "base/error.h"

#include <string.h>

/* What the memory holds of each piece, after the number of pieces. */
typedef struct entry {
    uint64_t kind;
    uint64_t bytes;
} entry;

#define HEAD_BYTES sizeof(uint64_t)

static uint64_t aligned(uint64_t offset)
{
    return (offset + 63) / 64 * 64;
}

static uint64_t first_piece(uint64_t count)
{
    return aligned(HEAD_BYTES + count * sizeof(entry));
}

uint64_t mh_pieces_bytes(const mh_piece *pieces, uint64_t count)
{
    uint64_t bytes = first_piece(count);
    for (uint64_t i = 0; i < count; i++)
        bytes = aligned(bytes + pieces[i].bytes);
    return bytes;
}

void mh_pieces_write(uint8_t *to, const mh_piece *pieces, uint64_t count)
{
    uint64_t at = first_piece(count);
    memcpy(to, &count, sizeof count);
    for (uint64_t i = 0; i < count; i++) {
        const entry about = {pieces[i].kind, pieces[i].bytes};
        memcpy(to + HEAD_BYTES + i * sizeof about, &about, sizeof about);
        if (about.bytes)
            memcpy(to + at, pieces[i].data, (size_t)about.bytes);
        at = aligned(at + about.bytes);
    }
}

mh_status mh_pieces_open(mh_piece_reader *reader, const uint8_t *base, uint64_t bytes,
                         mh_error *err)
{
    uint64_t count = 0;
    if (bytes >= HEAD_BYTES)
        memcpy(&count, base, sizeof count);
    if (bytes < HEAD_BYTES || count > (bytes - HEAD_BYTES) / sizeof(entry))
        return mh_fail(err, MH_ERR_INTERNAL, "a result of too many pieces");
    *reader =
        (mh_piece_reader){.base = base, .bytes = bytes, .count = count, .at = first_piece(count)};
    return MH_OK;
}

mh_status mh_pieces_next(mh_piece_reader *reader, mh_piece *out, mh_error *err)
{
    entry about; /* out of the other process's reach before it is checked */
    memcpy(&about, reader->base + HEAD_BYTES + reader->next * sizeof about, sizeof about);
    if (reader->at > reader->bytes || about.bytes > reader->bytes - reader->at)
        return mh_fail(err, MH_ERR_INTERNAL, "a result that is cut short");
    *out = (mh_piece){about.kind, about.bytes, reader->base + reader->at};
    reader->next++;
    reader->at = aligned(reader->at + about.bytes);
    return MH_OK;
}
