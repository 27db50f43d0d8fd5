/* tokens.h - token files opened: which tokens are where
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_TOKENS_H
#define MH_FORMAT_TOKENS_H

#include "array/convert.h"
#include "array/window_text.h"
#include "format/format.h"
#include "format/tokens_text.h"

/* One file; all files together are one line of tokens. */
typedef struct mh_tokens_file {
    uint32_t object;
    uint64_t data_offset;
    uint64_t first, tokens; /* in the line */
    uint64_t first_unit;
} mh_tokens_file;

typedef struct mh_tokens {
    mh_dtype stored, delivered; /* bits 0: not known yet */
    mh_tokens_file *files;
    uint32_t file_count;
    uint64_t tokens;      /* in all */
    mh_window_dim dim;    /* the windows */
    uint64_t ahead;       /* from a window's first token to that of its y */
    uint64_t unit_tokens; /* a power of two: 1 << unit_shift */
    uint32_t unit_shift;
    mh_convert convert;
} mh_tokens;

/* Adds the file that `path` names: a .bin of bare tokens, the .bin of a Megatron .idx, or an .npy
 * of one dimension. Errors name it: MH_ERR_INVALID (no dtype is known, or another one than that of
 * the files before), MH_ERR_CORRUPT, MH_ERR_UNSUPPORTED, and those of reading. */
MH_MUST_CHECK mh_status mh_tokens_add_file(mh_dataset *dataset, mh_tokens *tokens, const char *path,
                                           mh_error *err);

#endif
