/* tokens.h - token files opened: which tokens are where
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_TOKENS_H
#define MH_FORMAT_TOKENS_H

#include "array/convert.h"
#include "array/window_text.h"
#include "format/format.h"
#include "format/megatron_index.h"
#include "format/packing.h"
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
    /* --- packed documents --- */
    bool packed, has_eos;
    int64_t eos, pad;
    mh_packing *packing; /* NULL: documents are concatenated and cut */
} mh_tokens;

#define MH_TOKENS_UNIT_BYTES (UINT64_C(4) << 20)
/* What y has where no token follows: the value that cross entropy leaves out. */
#define MH_TOKENS_IGNORED (-100)

enum { MH_TOKENS_BOTH, MH_TOKENS_X, MH_TOKENS_Y, MH_TOKENS_CU_SEQLENS }; /* tags */

/* Adds the file that `path` names: a .bin of bare tokens, the .bin of a Megatron .idx, or an .npy
 * of one dimension. Errors name it: MH_ERR_INVALID (no dtype is known, or another one than that of
 * the files before), MH_ERR_CORRUPT, MH_ERR_UNSUPPORTED, and those of reading. */
MH_MUST_CHECK mh_status mh_tokens_add_file(mh_dataset *dataset, mh_tokens *tokens, const char *path,
                                           mh_error *err);

/* The units that hold tokens first to end - 1 of the line; gives how many. */
uint32_t mh_tokens_units(const mh_tokens *tokens, uint64_t first, uint64_t end, uint64_t *ids);

/* `count` tokens of the line from `token` on; units[0] is the one that `first` is in. */
void mh_tokens_place(const mh_tokens *tokens, const mh_bytes *units, uint64_t first, uint64_t token,
                     uint64_t count, uint8_t *into);

/* --- packed documents (tokens_packed.c) --- */

/* The documents of the file that was added last: those of the index, or those that end with `eos`,
 * for which the file is read. The errors of reading, MH_ERR_INVALID (no eos is known). */
MH_MUST_CHECK mh_status mh_tokens_pack_file(mh_dataset *dataset, mh_tokens *tokens,
                                            const mh_megatron_index *index, mh_error *err);
/* What the dataset's fields are then, and how they are placed. */
MH_MUST_CHECK mh_status mh_tokens_packed_open(mh_dataset *dataset, mh_tokens *tokens,
                                              mh_error *err);
uint32_t mh_tokens_packed_units(const mh_tokens *tokens, uint64_t sample, uint64_t *ids);
void mh_tokens_packed_measure(const mh_tokens *tokens, uint64_t sample, int64_t *shape);
void mh_tokens_packed_place(const mh_dataset *dataset, const mh_placing *placing);

#endif
