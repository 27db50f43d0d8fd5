/* byte_codec.h - how bytes were encoded: one table of functions for compressors, checksums, filters
 * SPDX-License-Identifier: Apache-2.0
 *
 * A codec is one file that ends in one const table, and a line in the list of byte_codec_list.c.
 * It takes bytes and gives bytes; chain.h puts several behind each other. Sizes are known before
 * anything is decoded: what hostile bytes claim never decides how much memory is written.
 */
#ifndef MH_CODEC_BYTE_CODEC_H
#define MH_CODEC_BYTE_CODEC_H

#include "base/json_view.h"

#include <millhead/error.h>

/* A kind of number as NumPy writes it: "<f4". */
typedef struct mh_number {
    char kind; /* 'i', 'u', 'f' */
    uint8_t bytes;
} mh_number;

/* What the metadata says about one use of a codec. */
typedef struct mh_codec_settings {
    uint32_t item_bytes;     /* shuffle */
    mh_number dtype, astype; /* delta, fixedscaleoffset: before and after encoding */
    double scale, offset;    /* fixedscaleoffset */
    bool checksum_at_start;  /* crc32c: else behind the bytes */
} mh_codec_settings;

/* Bytes to decode, and where they go: at most `room` bytes. */
typedef struct mh_codec_run {
    const uint8_t *from;
    uint64_t size;
    uint8_t *into;
    uint64_t room;  /* most bytes that may come out */
    uint64_t count; /* those that did: set by decode */
} mh_codec_run;

typedef struct mh_byte_codec {
    const char *name;  /* as Zarr names it */
    const char *what;  /* one line for `millhead list` */
    const char *lacks; /* NULL, or the library that this build does without: nothing else is set */
    /* Reads the codec's own options from an object of JSON (text NULL: it has none). Refuses what
     * it would decode wrongly: MH_ERR_UNSUPPORTED, MH_ERR_CORRUPT. (optional: it needs none) */
    mh_status (*configure)(mh_codec_settings *settings, mh_json_view options, mh_error *err);
    /* Bytes that `decoded` bytes become: exactly, or at most where *exact is set to false. */
    uint64_t (*encoded_bytes)(const mh_codec_settings *settings, uint64_t decoded, bool *exact);
    /* What one thread keeps; (optional). MH_ERR_NOMEM. */
    mh_status (*state_new)(void **out, mh_error *err);
    void (*state_free)(void *state);
    /* Pure but for the state. Errors say what is wrong with the bytes, not where they are from:
     * MH_ERR_CORRUPT, MH_ERR_UNSUPPORTED, MH_ERR_NOMEM. */
    mh_status (*decode)(void *state, const mh_codec_settings *settings, mh_codec_run *run,
                        mh_error *err);
} mh_byte_codec;

/* Ended by NULL. */
extern const mh_byte_codec *const mh_byte_codecs[];

/* Its number in the list, or -1. "numcodecs.zstd" is zstd. Pure. */
int mh_byte_codec_find(const char *name);

/* For codecs: encoded_bytes of those that keep the size, and of compressors. */
uint64_t mh_encoded_same(const mh_codec_settings *settings, uint64_t decoded, bool *exact);
uint64_t mh_encoded_packed(const mh_codec_settings *settings, uint64_t decoded, bool *exact);

/* For codecs: a number's type from a member of their options; MH_ERR_CORRUPT, MH_ERR_UNSUPPORTED
 * (big-endian, dates, strings). */
MH_MUST_CHECK mh_status mh_number_read(mh_number *out, mh_json_view options, const char *member,
                                       const char *codec, mh_error *err);

extern const mh_byte_codec mh_codec_bitround;
extern const mh_byte_codec mh_codec_blosc;
extern const mh_byte_codec mh_codec_crc32c;
extern const mh_byte_codec mh_codec_delta;
extern const mh_byte_codec mh_codec_fixedscaleoffset;
extern const mh_byte_codec mh_codec_gzip;
extern const mh_byte_codec mh_codec_lz4;
extern const mh_byte_codec mh_codec_shuffle;
extern const mh_byte_codec mh_codec_zlib;
extern const mh_byte_codec mh_codec_zstd;

#endif
