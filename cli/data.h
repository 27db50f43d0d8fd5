/* data.h - what the verbs over data share: opening it, and saying what is wrong with it
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_CLI_DATA_H
#define MILLHEAD_CLI_DATA_H

#include "cli.h"

/* Opens the paths (ended by NULL); `fields` is the value of --fields ("a,b"), or NULL: all. Returns
 * an exit code, and has said what is wrong where that is not MH_CLI_OK. */
int mh_cli_open_data(mh_dataset **out, const char *const *paths, const char *fields,
                     const char *where);

/* What to do about data that cannot be read. */
const char *mh_cli_data_remedy(mh_status status);

/* "float32", as NumPy calls it; returns `out`. */
#define MH_CLI_DTYPE 16
const char *mh_cli_dtype(char out[MH_CLI_DTYPE], mh_dtype dtype);

#endif
