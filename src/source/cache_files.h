/* cache_files.h - what the files of a cache directory share: ledger, entries' headers
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SOURCE_CACHE_FILES_H
#define MH_SOURCE_CACHE_FILES_H

#include "source/cache_dir.h"
#include <millhead/storage.h>

#include <fcntl.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define MH_CACHE_SPACE 17 /* hexadecimal digits and a NUL */

/* Mapped by every process that uses the directory. */
typedef struct mh_cache_ledger {
    uint64_t magic;
    _Atomic uint64_t bytes;     /* of all entries, and of those that are being written */
    _Atomic uint64_t counted_s; /* when they were counted last, by the clock of the wall */
} mh_cache_ledger;

/* Before the bytes of an entry, little endian as the machine is. */
typedef struct mh_cache_header {
    uint64_t magic;
    char key[40]; /* MH_CACHE_KEY, and zeros */
    uint64_t version, size, hash;
    uint64_t own_hash; /* of all before it */
} mh_cache_header;

#define MH_CACHE_MAGIC UINT64_C(0x3145484341434D4D)

/* Locks a file for all processes that ask: F_RDLCK, F_WRLCK, F_UNLCK. False: another one has it.
 * The lock ends with the descriptor, however the process ends. */
static inline bool mh_cache_lock(int fd, int type)
{
    struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

uint64_t mh_cache_header_hash(const mh_cache_header *header);

/* A directory of a cache, checked: ours alone. */
typedef struct mh_cache_root {
    int fd, ledger_fd;
    mh_cache_ledger *ledger;
} mh_cache_root;

MH_MUST_CHECK mh_status mh_cache_root_open(mh_cache_root *out, const char *path, bool make,
                                           mh_error *err);
void mh_cache_root_close(mh_cache_root *root);

/* Removes entries of spaces that nobody uses, those opened longest ago first, until `need` bytes
 * are free; gives how many are. One process at a time: where another does it, nothing happens. */
uint64_t mh_cache_evict(mh_cache_root *root, uint64_t need);

/* The same in one space, the directory `in`, used or not, with entries that nobody has read for a
 * day. */
uint64_t mh_cache_evict_idle(mh_cache_root *root, int in, uint64_t need);

/* Dates an entry that is read, at most once an hour. `dated`: the date that it has. */
void mh_cache_touch(int fd, const struct timespec *dated);

/* Sets the ledger to what is there. */
void mh_cache_recount(mh_cache_root *root);

#endif
