/* list.c - the formats and sources there are, for whoever wants to show them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/format.h"

int mh_format_list(size_t at, mh_kind *out)
{
    for (size_t i = 0; mh_formats[i]; i++)
        if (i == at) {
            *out = (mh_kind){mh_formats[i]->name, mh_formats[i]->suffixes, mh_formats[i]->what};
            return 1;
        }
    return 0;
}

int mh_source_list(size_t at, mh_kind *out)
{
    static const mh_kind kinds[] = {
        {"file", "", "files of this machine and of what is mounted"},
        {"synthetic", "", "bytes that are computed"},
    };
    if (at >= sizeof kinds / sizeof *kinds)
        return 0;
    *out = kinds[at];
    return 1;
}
