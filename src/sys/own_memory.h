/* own_memory.h - how much memory this process has for itself, looked at cheaply
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory of its own is what is written and mapped by no other process: a fork's pages that are
 * still its parent's do not count, nor files, nor millhead's own batches. The kernel has to walk
 * all pages for that (milliseconds per gigabyte), so anonymous memory, which it counts anyway, is
 * asked first, and no more than a five-hundredth of the time goes into looking.
 */
#ifndef MH_SYS_OWN_MEMORY_H
#define MH_SYS_OWN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Begins as all zero; one for each thread that looks. */
typedef struct mh_own_memory {
    uint64_t look_ns, walk_ns;      /* not before: the next look, the next walk over pages */
    uint64_t own_bytes, anon_bytes; /* at the last walk */
} mh_own_memory;

/* The bytes of its own where they are more than `most`, else 0: also where it is not yet time to
 * look again, unless `at_once`. `root` as in mh_cgroup_read. */
uint64_t mh_own_memory_over(mh_own_memory *look, uint64_t most, bool at_once, const char *root);

/* The texts, as pure functions over bytes; 1 when found, else 0 with *out untouched.
 * proc/PID/statm: anonymous memory, in pages. */
int mh_parse_anonymous(const char *text, size_t length, uint64_t *out_pages);

/* proc/PID/smaps: Private_Dirty of all mappings but millhead's, in bytes. */
int mh_parse_own(const char *text, size_t length, uint64_t *out_bytes);

#endif
