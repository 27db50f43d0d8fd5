/* packing.h - documents packed into samples of equal length, by best fit
 * SPDX-License-Identifier: Apache-2.0
 *
 * Documents longer than a sample are cut into pieces. Pieces of a stretch of the file are packed
 * together, the longest first, each into the fullest sample that has room: so a sample is made of
 * what lies close together, and the plan needs no more memory than its result. The same documents
 * give the same plan.
 */
#ifndef MH_FORMAT_PACKING_H
#define MH_FORMAT_PACKING_H

#include <millhead/error.h>

#define MH_PACK_LONGEST (UINT32_C(1) << 24) /* tokens of a sample */

typedef struct mh_packing mh_packing;

/* A piece of a sample; those of a sample are in order of `start`. */
typedef struct mh_piece_of_text {
    uint64_t start;  /* its first token in the line of all files */
    uint32_t length; /* at least 1 */
    int ends;        /* a document ends with it: no token of the document follows */
} mh_piece_of_text;

/* Samples of `length` tokens, 1 to MH_PACK_LONGEST, from stretches of at most `stretch` tokens, at
 * least `length`. Free with mh_packing_free. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_packing_new(mh_packing **out, uint32_t length, uint64_t stretch,
                                       mh_error *err);
void mh_packing_free(mh_packing *packing);

/* One more document, behind the others. Empty ones are left out. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_packing_add(mh_packing *packing, uint64_t start, uint64_t length,
                                       mh_error *err);

/* Packs what is left: nothing before it lies in a sample with what comes after. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_packing_end(mh_packing *packing, mh_error *err);

/* --- once all is packed: any thread --- */

uint64_t mh_packing_samples(const mh_packing *packing);
uint32_t mh_packing_pieces_most(const mh_packing *packing); /* of one sample */
uint32_t mh_packing_pieces(const mh_packing *packing, uint64_t sample);
mh_piece_of_text mh_packing_piece(const mh_packing *packing, uint64_t sample, uint32_t number);

#endif
