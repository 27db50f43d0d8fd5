/* object_versions.c - the ETag that the first answer about an object had
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/object_versions.h"

#include "base/alloc.h"

#include <string.h>

#define ROOM_FIRST 64u

struct mh_object_version {
    uint32_t object;
    char etag[MH_ETAG_ROOM]; /* "": the place is free */
};

/* The object's place, or the free one where it belongs. */
static struct mh_object_version *place_of(const mh_object_versions *versions, uint32_t object)
{
    uint32_t mask = versions->room - 1, at = object * 2654435769u & mask;
    while (*versions->entries[at].etag && versions->entries[at].object != object)
        at = (at + 1) & mask;
    return &versions->entries[at];
}

const char *mh_object_versions_find(const mh_object_versions *versions, uint32_t object)
{
    if (!versions->room)
        return NULL;
    const struct mh_object_version *place = place_of(versions, object);
    return *place->etag ? place->etag : NULL;
}

static bool grow(mh_object_versions *versions)
{
    mh_object_versions larger = {.room = versions->room ? versions->room * 2 : ROOM_FIRST,
                                 .count = versions->count};
    larger.entries = larger.room ? mh_calloc(larger.room, sizeof *larger.entries) : NULL;
    if (!larger.entries)
        return false;
    for (uint32_t i = 0; i < versions->room; i++)
        if (*versions->entries[i].etag)
            *place_of(&larger, versions->entries[i].object) = versions->entries[i];
    mh_free(versions->entries);
    *versions = larger;
    return true;
}

bool mh_object_versions_add(mh_object_versions *versions, uint32_t object, const char *etag)
{
    if (versions->count >= versions->room / 2 && !grow(versions))
        return false;
    struct mh_object_version *place = place_of(versions, object);
    place->object = object;
    memcpy(place->etag, etag, strlen(etag) + 1);
    versions->count++;
    return true;
}

void mh_object_versions_free(mh_object_versions *versions)
{
    mh_free(versions->entries);
    *versions = (mh_object_versions){0};
}
