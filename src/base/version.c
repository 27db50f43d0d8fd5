/* version.c - the version this library was built as
 * SPDX-License-Identifier: Apache-2.0
 */
#include <millhead/millhead.h>

const char *mh_version(void)
{
    return MH_VERSION; /* from meson.build, the one place that names it */
}
