/* remote_listing.h - what lies below a prefix of a store, as the index of a folder
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_REMOTE_LISTING_H
#define MH_FORMAT_REMOTE_LISTING_H

#include "format/index.h"
#include "source/source.h"

/* Whether there is a name that begins with `root` and a slash. Asks for one page of the list. */
bool mh_remote_listing_is_folder(const mh_source_type *source, const mh_source_options *options,
                                 const char *root);

/* Lists all names that begin with `root` and a slash. Names are parts between slashes; what has a
 * part that is empty or begins with a dot is passed over; a name that ends in a slash is a folder.
 * *out is the index's bytes: free them with mh_free. MH_ERR_NOT_FOUND: there is no such name;
 * MH_ERR_NOMEM, and what listing fails with. */
MH_MUST_CHECK mh_status mh_remote_listing_make(uint8_t **out, uint64_t *out_size,
                                               const mh_source_type *source,
                                               const mh_source_options *options, const char *root,
                                               mh_error *err);

#endif
