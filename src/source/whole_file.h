/* whole_file.h - reading a file from its first byte to its last, as one of very many
 * SPDX-License-Identifier: Apache-2.0
 *
 * Such a file is read once in a long time: it is opened, read and closed, and no descriptor is
 * kept.
 */
#ifndef MH_SOURCE_WHOLE_FILE_H
#define MH_SOURCE_WHOLE_FILE_H

#include "source/source.h"
#include <stdbool.h>
#include <sys/stat.h>

/* Changes when a file does. Never 0. Pure. */
uint64_t mh_file_version(const struct stat *about);

/* Fills *err for an open that failed with errno. */
mh_status mh_file_fail_open(mh_error *err, const char *name);

/* Reads the object, which may be larger or smaller than anyone knew, up to read->size bytes. With
 * `only_cached` a file or a name that is not in memory is MH_AGAIN. Errors: MH_ERR_NOT_FOUND,
 * MH_ERR_IO (it has changed, or cannot be read), MH_ERR_CORRUPT (it is larger than read->size). Any
 * thread. */
MH_MUST_CHECK mh_status mh_file_read_whole(const mh_object *object, const mh_read *read,
                                           bool only_cached, uint64_t *got, mh_error *err);

#endif
