/* file_version.h - a number that changes when a file's bytes do
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SOURCE_FILE_VERSION_H
#define MH_SOURCE_FILE_VERSION_H

#include <stdint.h>
#include <sys/stat.h>

/* From inode, date and size. */
static inline uint64_t mh_file_version(const struct stat *about)
{
    uint64_t version = (uint64_t)about->st_ino * UINT64_C(0x9E3779B97F4A7C15);
    version ^=
        (uint64_t)about->st_mtim.tv_sec * UINT64_C(1000000000) + (uint64_t)about->st_mtim.tv_nsec;
    return version * UINT64_C(0xD6E8FEB86659FD93) ^ (uint64_t)about->st_size;
}

#endif
