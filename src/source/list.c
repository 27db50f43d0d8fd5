/* list.c - the sources there are, and which one a name asks for
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "source/cache.h"
#include "source/http.h"
#include "source/source.h"

#include <string.h>
#include <strings.h>

const mh_source_type *const mh_sources[] = {&mh_source_http, &mh_source_s3, NULL};

/* Whether a list of words, with spaces between them, has this one. */
static bool has_word(const char *words, const char *word, size_t length)
{
    while (*words) {
        size_t there = strcspn(words, " ");
        if (there == length && strncasecmp(words, word, length) == 0)
            return true;
        words += there + (words[there] == ' ');
    }
    return false;
}

mh_status mh_source_of(const mh_source_type **out, const char *name, mh_error *err)
{
    if (!mh_http_is_url(name)) {
        *out = &mh_source_file;
        return MH_OK;
    }
    size_t scheme = strcspn(name, ":");
    for (const mh_source_type *const *type = mh_sources; *type; type++)
        if (has_word((*type)->schemes, name, scheme)) {
            *out = *type;
            return MH_OK;
        }
    return mh_fail(err, MH_ERR_UNSUPPORTED, "%.*s:// is not supported: see millhead list",
                   (int)(scheme < 32 ? scheme : 32), name);
}

mh_status mh_source_open(mh_source **out, const mh_source_type *type, const mh_objects *objects,
                         const mh_source_options *options, mh_error *err)
{
    mh_source *inner = NULL;
    if (options->cache_check_each && !type->schemes)
        return mh_fail(err, MH_ERR_INVALID, "cache_check=each is for URLs, not for files");
    MH_TRY(type->open(&inner, objects, options, err));
    mh_status status = options->cache ? mh_source_cache(out, inner, objects, options, err) : MH_OK;
    if (status != MH_OK)
        mh_source_close(inner);
    else if (!options->cache)
        *out = inner;
    return status;
}
