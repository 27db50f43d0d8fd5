/* zip_directory.h - what lies where in a zip archive, read by pure functions over its bytes
 * SPDX-License-Identifier: Apache-2.0
 *
 * Names and numbers are those of PKWARE's APPNOTE.TXT, 4.3 and 4.5.3 (zip64).
 */
#ifndef MH_FORMAT_ZIP_DIRECTORY_H
#define MH_FORMAT_ZIP_DIRECTORY_H

#include <millhead/error.h>

#define MH_ZIP_TAIL_MOST (65535u + 22 + 20 + 56) /* a comment and the three records of the end */
#define MH_ZIP_LOCAL_BYTES 30u                   /* of a local header, without name and extras */
#define MH_ZIP_DIRECTORY_MOST (UINT64_C(1) << 26)

/* Where the directory lies. */
typedef struct mh_zip_end {
    uint64_t offset, bytes, count;
} mh_zip_end;

typedef struct mh_zip_entry {
    const char *name; /* in the directory's bytes, not ended by a zero; it holds none */
    size_t name_bytes;
    uint16_t method; /* 0: stored as it is */
    int encrypted;
    uint64_t bytes, packed_bytes;
    uint64_t header_offset; /* of the local header, which lies before the directory */
} mh_zip_entry;

/* Finds the directory from the last `size` bytes of an archive of file_bytes: all of it, or at
 * least MH_ZIP_TAIL_MOST. *out lies inside the file. MH_ERR_CORRUPT; MH_ERR_UNSUPPORTED for several
 * disks and a directory of more than MH_ZIP_DIRECTORY_MOST. */
MH_MUST_CHECK mh_status mh_zip_end_read(mh_zip_end *out, const uint8_t *tail, size_t size,
                                        uint64_t file_bytes, mh_error *err);

/* The entry at byte *at of the directory, which is end->bytes long; moves *at behind it. Its header
 * and packed bytes lie before the directory. MH_ERR_CORRUPT. */
MH_MUST_CHECK mh_status mh_zip_entry_read(mh_zip_entry *out, const uint8_t *directory,
                                          const mh_zip_end *end, uint64_t *at, mh_error *err);

/* Where the entry's bytes begin, from the MH_ZIP_LOCAL_BYTES at its header_offset. They end before
 * the directory. MH_ERR_CORRUPT. */
MH_MUST_CHECK mh_status mh_zip_local_read(uint64_t *out_offset, const uint8_t *local,
                                          const mh_zip_entry *entry, const mh_zip_end *end,
                                          mh_error *err);

/* Bytes of the local header that the `size` bytes begin with, name and extras among them: at most
 * `size`. For an entry whose header was read together with what follows. MH_ERR_CORRUPT. */
MH_MUST_CHECK mh_status mh_zip_local_skip(uint64_t *out, const uint8_t *bytes, uint64_t size,
                                          mh_error *err);

#endif
