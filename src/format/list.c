/* list.c - the formats and sources there are, for whoever wants to show them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/format.h"
#include "source/synthetic.h"

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
    const mh_source_type *type = at == 0 ? &mh_source_file : at == 1 ? &mh_source_synthetic : NULL;
    for (size_t i = 0; !type && mh_sources[i]; i++)
        if (i + 2 == at)
            type = mh_sources[i];
    if (!type)
        return 0;
    *out = (mh_kind){type->name, type->schemes ? type->schemes : "", type->what};
    return 1;
}
