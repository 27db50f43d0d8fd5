/* memory.h - memory for batches, shared by memfd or private, and the limits it must respect
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SYS_MEMORY_H
#define MH_SYS_MEMORY_H

#include <millhead/error.h>
#include <stdbool.h>

/* What can be had at this moment. */
typedef struct mh_memory_room {
    uint64_t total_bytes;     /* the smaller of MemTotal and the cgroup's limit */
    uint64_t available_bytes; /* the smaller of MemAvailable and (cgroup limit - usage), less a
                                 reserve of 64 MiB; 0 when nothing is left */
    uint64_t machine_bytes;   /* MemAvailable; MH_NO_LIMIT when it cannot be read */
    uint64_t group_bytes;     /* what the cgroup leaves; MH_NO_LIMIT without a limit */
} mh_memory_room;

/* Reads /proc/meminfo and the cgroup. `root` as in mh_cgroup_read. Never fails: what cannot be read
 * counts as no limit. Any thread. */
void mh_memory_room_read(mh_memory_room *out, const char *root);

/* Address space for one of `shares` equal maps of shared memory: at most what the machine could
 * ever back; under an address-space limit (ulimit -v) a small part of that, because the limit is
 * for everything else too; never so much that many maps fill a 47-bit address space. */
size_t mh_memory_map_most(uint32_t shares);

/* One memfd, mapped once at its largest size and grown in place, so that addresses never move and
 * one descriptor serves for ever. Private memory is the same without a memfd: a forked child has a
 * copy of its own. */
typedef struct mh_memory {
    int fd; /* -1: private */
    uint8_t *base;
    size_t map_bytes;  /* address space reserved (MAP_NORESERVE) */
    size_t size_bytes; /* backed by memory: beyond it is SIGBUS */
} mh_memory;

/* Creates a memfd (close-on-exec) called `name` and maps `map_bytes` of address space, halved
 * until the kernel agrees but not below `least_bytes`. Nothing is backed yet. On failure *out is
 * untouched and nothing stays open. Errors: MH_ERR_NOMEM, MH_ERR_IO. */
MH_MUST_CHECK mh_status mh_memory_create(mh_memory *out, const char *name, size_t map_bytes,
                                         size_t least_bytes, mh_error *err);

/* The same without a memfd. Errors: MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_memory_create_private(mh_memory *out, size_t map_bytes,
                                                 size_t least_bytes, mh_error *err);

/* Maps another process's memfd; takes a descriptor that stays the caller's (it is duplicated,
 * close-on-exec). size_bytes is what the memfd has now. Errors: MH_ERR_IO, MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_memory_attach(mh_memory *out, int fd, size_t map_bytes, mh_error *err);

/* Backs the first `size_bytes` (never shrinks). Compares the growth with what is available first,
 * because fallocate in a full memory cgroup is a SIGKILL, not an error: refuses with MH_ERR_NOMEM
 * and both figures. One thread at a time. */
MH_MUST_CHECK mh_status mh_memory_grow(mh_memory *memory, size_t size_bytes, mh_error *err);

/* Backs [offset, offset + bytes), whole pages, with a growth of the memfd where they lie beyond its
 * end. Checks and errors as mh_memory_grow; on failure nothing of the range is backed. One thread
 * at a time. */
MH_MUST_CHECK mh_status mh_memory_back(mh_memory *memory, size_t offset, size_t bytes,
                                       mh_error *err);

/* Reads the size again: another process may have grown the memfd. */
void mh_memory_refresh(mh_memory *memory);

/* Whether [offset, offset + bytes) is backed: beyond is SIGBUS. Reads the size again where it must.
 */
bool mh_memory_has(mh_memory *memory, uint64_t offset, uint64_t bytes);

/* Gives the pages of a range (page-aligned inwards) back; the range reads as zero afterwards. */
void mh_memory_release_range(mh_memory *memory, size_t offset, size_t bytes);

/* Unmaps and closes. Accepts an all-zero struct with fd -1 and one already closed. */
void mh_memory_close(mh_memory *memory);

#endif
