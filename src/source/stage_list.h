/* stage_list.h - the files that are to be copied, and what they are called there
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SOURCE_STAGE_LIST_H
#define MH_SOURCE_STAGE_LIST_H

#include "source/source.h"

typedef struct mh_stage_list {
    mh_object *objects; /* names are owned */
    char **paths;       /* below the directory they are copied to; point into the names */
    uint32_t count, room;
    mh_objects as_objects;
} mh_stage_list;

/* One object, or all below a directory or prefix. MH_ERR_NOT_FOUND: there is nothing.
 * MH_ERR_INVALID: a name leads out of the directory. Freed by the caller, also on failure. */
MH_MUST_CHECK mh_status mh_stage_list_read(mh_stage_list *out, const char *from,
                                           const mh_source_type *type,
                                           const mh_source_options *options, mh_error *err);
void mh_stage_list_free(mh_stage_list *list);

#endif
