/* tokens_text.h - token files as people name them: "tokens:train.bin,dtype=uint16,as=int32"
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_TOKENS_TEXT_H
#define MH_FORMAT_TOKENS_TEXT_H

#include <millhead/dataset.h>
#include <stdbool.h>

#define MH_TOKENS_PREFIX "tokens:"
#define MH_TOKENS_PATH_ROOM 4096

typedef struct mh_tokens_text {
    char path[MH_TOKENS_PATH_ROOM];
    mh_dtype stored;    /* bits 0: not said */
    mh_dtype delivered; /* the same */
    bool packed;        /* pack=bestfit */
    bool has_eos;       /* eos=50256: documents end behind it */
    int64_t eos, pad;   /* pad=0 */
} mh_tokens_text;

/* A path, with or without the prefix; parts may follow it after a comma where it has the prefix.
 * MH_ERR_INVALID. Pure. */
MH_MUST_CHECK mh_status mh_tokens_text_read(mh_tokens_text *out, const char *text, mh_error *err);

#endif
