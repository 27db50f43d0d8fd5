/* listing.h - what lies in a folder, as an index
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_LISTING_H
#define MH_FORMAT_LISTING_H

#include "format/index.h"

/* A directory that changed less than this before it was listed may have changed again in the same
 * tick of the clock that dates it: it is listed once more. */
#define MH_LISTING_RECENT_NS INT64_C(2000000000)

/* Whether the index still says what lies in the folder, as far as the dates of its directories
 * tell: one stat each, nothing is listed. root_fd is the folder. */
bool mh_listing_holds(const mh_index *index, int root_fd);

/* Lists the folder. Of `old` (NULL: none) what still holds is taken over instead of being listed
 * again. `root` is what the index is known by, two texts. Folders that are linked to are entered;
 * names that begin with a dot are passed over. `plain` says whether the index is to be marked as
 * MH_INDEX_PLAIN. *out is the index's bytes: free them with mh_free.
 * Errors name the directory: MH_ERR_IO, MH_ERR_NOMEM, MH_ERR_INVALID (a loop of links). */
MH_MUST_CHECK mh_status mh_listing_make(uint8_t **out, uint64_t *out_size, int root_fd,
                                        const char *root, uint64_t root_bytes, const mh_index *old,
                                        bool plain, mh_error *err);

/* Whether the name ends like a picture's, of whatever kind. */
bool mh_listing_is_picture(const char *name);

#endif
