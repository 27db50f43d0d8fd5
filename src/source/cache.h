/* cache.h - a source that keeps on disk what another source has read
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SOURCE_CACHE_H
#define MH_SOURCE_CACHE_H

#include "source/source.h"

/* A source that reads what options->cache has, and the rest from `inner`, which it takes over; on
 * failure that stays the caller's. Errors as mh_cache_dir_open. */
MH_MUST_CHECK mh_status mh_source_cache(mh_source **out, mh_source *inner,
                                        const mh_objects *objects, const mh_source_options *options,
                                        mh_error *err);

#endif
