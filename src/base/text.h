/* text.h - putting a text together in memory of a fixed size
 * SPDX-License-Identifier: Apache-2.0
 *
 *     char url[64];
 *     mh_text text = mh_text_in(url, sizeof url);
 *     mh_text_put(&text, "https://");
 *     mh_text_put(&text, host);
 *     if (text.cut) ...   it did not fit
 */
#ifndef MH_BASE_TEXT_H
#define MH_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* There is always a NUL behind what was put. */
typedef struct mh_text {
    char *data;
    size_t room; /* at least 1 */
    size_t used; /* without the NUL */
    bool cut;    /* something did not fit; what came before it did */
} mh_text;

static inline mh_text mh_text_in(char *data, size_t room)
{
    data[0] = '\0';
    return (mh_text){.data = data, .room = room};
}

static inline void mh_text_put_bytes(mh_text *text, const char *bytes, size_t size)
{
    if (text->cut || size >= text->room - text->used) {
        text->cut = true;
        return;
    }
    memcpy(text->data + text->used, bytes, size);
    text->used += size;
    text->data[text->used] = '\0';
}

static inline void mh_text_put(mh_text *text, const char *put)
{
    mh_text_put_bytes(text, put, strlen(put));
}

#endif
