/* fuzz_codec.c - fuzz target: whatever bytes a codec gets, it writes only where it may
 * SPDX-License-Identifier: Apache-2.0
 *
 * Two bytes choose the codec and the size that is due; the rest is the chunk. Memory of exactly the
 * right sizes lets a sanitizer see any byte beyond.
 */
#include "codec/chain.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char options[] = "{\"elementsize\": 4, \"dtype\": \"<f4\", \"astype\": \"<f4\","
                              " \"scale\": 10, \"offset\": 1.5}";

static int count_codecs(void)
{
    int count = 0;
    while (mh_byte_codecs[count])
        count++;
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mh_chain chain;
    const mh_chain *only = &chain;
    mh_chain_room *room;
    mh_json_view view;
    mh_error err = {0};
    if (size < 2 || mh_json_view_of(&view, options, strlen(options), "options", &err) != MH_OK)
        return 0;
    mh_chain_init(&chain, data[1] * 16u);
    if (mh_chain_add(&chain, mh_byte_codecs[data[0] % count_codecs()]->name, view, &err) != MH_OK)
        return 0; /* not in this build */
    uint8_t *from = malloc(size - 1), *out = malloc(chain.bytes[0] + 1);
    if (!from || !out || mh_chain_room_new(&room, &only, 1, &err) != MH_OK)
        abort();
    memcpy(from, data + 2, size - 2);
    mh_status status = mh_chain_decode(&chain, room, from, size - 2, out, &err);
    if (status != MH_OK && (err.message[0] == '\0' || status != err.code))
        abort();
    mh_chain_room_free(room);
    free(from);
    free(out);
    return 0;
}
