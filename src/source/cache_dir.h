/* cache_dir.h - a directory that keeps what was read, shared by processes
 * SPDX-License-Identifier: Apache-2.0
 *
 *     DIR/ledger              bytes in use, mapped by every process
 *     DIR/SPACE/name          what the space is of, for people
 *     DIR/SPACE/ab/KEY        an entry: a header with its version and checksum, then the bytes
 *     DIR/SPACE/ab/KEY.part   one that is being written, locked by whoever writes it
 *
 * A space is a dataset. Entries are written aside and renamed, never changed, and checked when they
 * are read: whatever kills a process, an entry is whole or not there. Over the limit, other spaces
 * make room, the one that was opened longest ago first; then entries of the own space that nobody
 * has read for a day. The others stay: an epoch reads each of them once, so of what is read in this
 * epoch and again in the next, all lies in the cache between the two, and as much of it is a hit as
 * fits. No choice among them hits more; exchanging them would only write.
 */
#ifndef MH_SOURCE_CACHE_DIR_H
#define MH_SOURCE_CACHE_DIR_H

#include <millhead/error.h>
#include <stdbool.h>

#define MH_CACHE_KEY 33 /* hexadecimal digits and a NUL */

typedef struct mh_cache_dir mh_cache_dir;

/* What an entry is of. `version` is the object's, or else stands for the whole dataset. */
typedef struct mh_cache_key {
    char text[MH_CACHE_KEY];
    uint64_t version;
} mh_cache_key;

/* Pure. `whole`: offset is 0 and size the most it may have. */
void mh_cache_key_make(mh_cache_key *out, const char *name, bool whole, uint64_t offset,
                       uint64_t size, uint64_t version);

/* "DIR:50GB" or "DIR", then the limit is half of what is free. `space` is what data is called, of
 * which endpoint. Makes the directory where it is missing. MH_ERR_INVALID (the text; a network file
 * system; others may write there), MH_ERR_IO (not writable). */
MH_MUST_CHECK mh_status mh_cache_dir_open(mh_cache_dir **out, const char *text, const char *space,
                                          mh_error *err);
void mh_cache_dir_close(mh_cache_dir *dir); /* NULL allowed */

typedef enum mh_cache_found {
    MH_CACHE_HIT,
    MH_CACHE_MISS,
    MH_CACHE_LATER, /* it is there, but not in memory: ask with `wait` */
} mh_cache_found;

/* Any thread. Reads an entry of `room` bytes at most; a corrupt one, or one of another version, is
 * removed and missed. */
mh_cache_found mh_cache_dir_read(mh_cache_dir *dir, const mh_cache_key *key, uint8_t *into,
                                 uint64_t room, bool wait, uint64_t *got);

/* Whether there is an entry, of whatever version. */
bool mh_cache_dir_has(const mh_cache_dir *dir, const mh_cache_key *key);

/* Begins to write an entry, which only one may do at a time: its descriptor; -1: somebody else
 * does, -2: the cache takes nothing now. */
int mh_cache_dir_begin(mh_cache_dir *dir, const mh_cache_key *key);

/* Writes the entry and ends it; NULL bytes: gives up. Never fails: what cannot be written is not
 * kept. The first failure is said on standard error. */
void mh_cache_dir_end(mh_cache_dir *dir, const mh_cache_key *key, int part, const uint8_t *bytes,
                      uint64_t size);

typedef struct mh_cache_stats {
    uint64_t hits, misses, hit_bytes, written, written_bytes, evicted_bytes, corrupt;
} mh_cache_stats;
void mh_cache_dir_stats(mh_cache_dir *dir, mh_cache_stats *out);

#endif
