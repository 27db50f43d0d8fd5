/* chain.c - codecs behind each other
 * SPDX-License-Identifier: Apache-2.0
 */
#include "codec/chain.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

#define CODECS_MOST 32 /* in mh_byte_codecs */

struct mh_chain_room {
    void *states[CODECS_MOST]; /* by number in mh_byte_codecs */
    uint8_t *between[2];       /* what one codec gives and the next takes */
};

void mh_chain_init(mh_chain *chain, uint64_t bytes)
{
    *chain = (mh_chain){.bytes = {bytes}, .exact = {true}};
}

mh_status mh_chain_add(mh_chain *chain, const char *name, mh_json_view options, mh_error *err)
{
    const int number = mh_byte_codec_find(name);
    const uint32_t at = chain->count;
    if (number < 0)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "unknown codec '%s': see millhead list", name);
    const mh_byte_codec *codec = mh_byte_codecs[number];
    if (codec->lacks)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "the codec %s needs %s, which this build lacks",
                       codec->name, codec->lacks);
    if (at == MH_CHAIN_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "more than %d codecs", MH_CHAIN_MOST);
    chain->settings[at] = (mh_codec_settings){0};
    if (codec->configure)
        MH_TRY(codec->configure(&chain->settings[at], options, err));
    bool exact = chain->exact[at];
    chain->codecs[at] = (uint8_t)number;
    chain->bytes[at + 1] = codec->encoded_bytes(&chain->settings[at], chain->bytes[at], &exact);
    chain->exact[at + 1] = exact;
    chain->count++;
    return MH_OK;
}

/* --- what a thread needs --- */

static mh_status room_fill(mh_chain_room *room, const mh_chain *chain, uint64_t *between,
                           mh_error *err)
{
    for (uint32_t i = 0; i < chain->count; i++) {
        const uint8_t number = chain->codecs[i];
        const mh_byte_codec *codec = mh_byte_codecs[number];
        if (codec->state_new && !room->states[number])
            MH_TRY(codec->state_new(&room->states[number], err));
        if (i > 0 && chain->bytes[i] > *between)
            *between = chain->bytes[i];
    }
    return MH_OK;
}

mh_status mh_chain_room_new(mh_chain_room **out, const mh_chain *const *chains, size_t count,
                            mh_error *err)
{
    uint64_t between = 0;
    mh_status status = MH_OK;
    mh_chain_room *room = mh_calloc(1, sizeof *room);
    if (!room)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to decode in");
    for (size_t i = 0; i < count && status == MH_OK; i++)
        if (chains[i])
            status = room_fill(room, chains[i], &between, err);
    for (int i = 0; i < 2 && between && status == MH_OK; i++) {
        room->between[i] = mh_calloc(between, 1);
        if (!room->between[i])
            status = mh_fail(err, MH_ERR_NOMEM, "no memory for %llu bytes to decode in",
                             (unsigned long long)between);
    }
    if (status != MH_OK) {
        mh_chain_room_free(room);
        return status;
    }
    *out = room;
    return MH_OK;
}

void mh_chain_room_free(mh_chain_room *room)
{
    if (!room)
        return;
    for (int i = 0; mh_byte_codecs[i]; i++)
        if (room->states[i])
            mh_byte_codecs[i]->state_free(room->states[i]);
    mh_free(room->between[0]);
    mh_free(room->between[1]);
    mh_free(room);
}

/* --- decoding --- */

static mh_status fail_size(const mh_chain *chain, uint32_t step, uint64_t got, mh_error *err)
{
    const char *what = step < chain->count ? mh_byte_codecs[chain->codecs[step]]->name : "bytes";
    return mh_fail(err, MH_ERR_CORRUPT, "%s: %llu bytes, there should be %llu", what,
                   (unsigned long long)got, (unsigned long long)chain->bytes[step]);
}

mh_status mh_chain_decode(const mh_chain *chain, mh_chain_room *room, const uint8_t *from,
                          uint64_t size, uint8_t *out, mh_error *err)
{
    if (chain->count == 0) {
        if (size != chain->bytes[0])
            return fail_size(chain, 0, size, err);
        memcpy(out, from, size);
        return MH_OK;
    }
    for (uint32_t step = chain->count; step-- > 0;) {
        const uint8_t number = chain->codecs[step];
        mh_codec_run run = {.from = from,
                            .size = size,
                            .into = step ? room->between[step & 1] : out,
                            .room = chain->bytes[step]};
        MH_TRY(mh_byte_codecs[number]->decode(room->states[number], &chain->settings[step], &run,
                                              err));
        if (chain->exact[step] && run.count != chain->bytes[step])
            return fail_size(chain, step, run.count, err);
        from = run.into;
        size = run.count;
    }
    return MH_OK;
}
