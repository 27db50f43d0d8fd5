/* test_codec.c - codecs of bytes, alone and behind each other
 * SPDX-License-Identifier: Apache-2.0
 */
#include "codec/chain.h"
#include "codec/checksum.h"
#include "unit.h"

#include <mh_config.h>

#if MH_HAVE_ZSTD
#include <zstd.h>
#endif
#if MH_HAVE_LZ4
#include <lz4.h>
#endif
#if MH_HAVE_BLOSC
#include <blosc.h>
#endif
#if MH_HAVE_DEFLATE
#include <libdeflate.h>
#endif

#define BYTES 4096u

static mh_error err;

static mh_json_view text(const char *json)
{
    mh_json_view view;
    assert_int_equal(mh_json_view_of(&view, json, strlen(json), "options", &err), MH_OK);
    return view;
}

static void add(mh_chain *chain, const char *name, const char *options)
{
    mh_json_view view = {NULL, 0};
    mh_status status = mh_chain_add(chain, name, options ? text(options) : view, &err);
    if (status != MH_OK)
        fail_msg("%s: %s", name, err.message);
}

/* Decodes from memory of exactly that size into memory of exactly that size. */
static mh_status decode(const mh_chain *chain, const void *from, size_t size, uint8_t *out)
{
    mh_chain_room *room;
    uint8_t *exact = malloc(size ? size : 1), *into = malloc(chain->bytes[0] + 1);
    assert_true(exact && into);
    memcpy(exact, from, size);
    assert_int_equal(mh_chain_room_new(&room, &chain, 1, &err), MH_OK);
    mh_status status = mh_chain_decode(chain, room, exact, size, into, &err);
    if (status == MH_OK)
        memcpy(out, into, chain->bytes[0]);
    mh_chain_room_free(room);
    free(exact);
    free(into);
    return status;
}

static void pattern(uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i * i / 7);
}

static void crc32c_is_that_of_rfc_3720(void **state)
{
    uint8_t zeros[32] = {0}, ones[32], rising[32], longer[1000];
    (void)state;
    memset(ones, 0xff, sizeof ones);
    for (uint8_t i = 0; i < 32; i++)
        rising[i] = i;
    assert_int_equal(mh_crc32c(zeros, 32), 0x8a9136aa);
    assert_int_equal(mh_crc32c(ones, 32), 0x62a8ab43);
    assert_int_equal(mh_crc32c(rising, 32), 0x46dd794e);
    assert_int_equal(mh_crc32c((const uint8_t *)"123456789", 9), 0xe3069283);
    pattern(longer, sizeof longer);
    for (size_t size = 0; size <= sizeof longer; size += 13)
        assert_int_equal(mh_crc32c(longer + size % 7, size - size % 7),
                         mh_crc32c_plain(longer + size % 7, size - size % 7));
}

static void a_chain_of_nothing_wants_exactly_its_bytes(void **state)
{
    mh_chain chain;
    uint8_t out[4];
    (void)state;
    mh_chain_init(&chain, 4);
    assert_int_equal(decode(&chain, "abcd", 4, out), MH_OK);
    assert_memory_equal(out, "abcd", 4);
    assert_int_equal(decode(&chain, "abc", 3, out), MH_ERR_CORRUPT);
    assert_int_equal(decode(&chain, "abcde", 5, out), MH_ERR_CORRUPT);
}

static void a_wrong_checksum_is_found(void **state)
{
    mh_chain chain;
    uint8_t out[9], stored[13];
    (void)state;
    for (int start = 0; start < 2; start++) {
        mh_chain_init(&chain, 9);
        add(&chain, "crc32c", start ? "{\"id\": \"crc32c\", \"location\": \"start\"}" : NULL);
        assert_int_equal(mh_chain_stored_most(&chain), 13);
        memcpy(stored + (start ? 4 : 0), "123456789", 9);
        memcpy(stored + (start ? 0 : 9), "\x83\x92\x06\xe3", 4);
        assert_int_equal(decode(&chain, stored, 13, out), MH_OK);
        assert_memory_equal(out, "123456789", 9);
        for (size_t bit = 0; bit < sizeof stored * 8; bit++) {
            stored[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(decode(&chain, stored, 13, out), MH_ERR_CORRUPT);
            assert_non_null(strstr(err.message, "crc32c"));
            stored[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        assert_int_equal(decode(&chain, stored, 3, out), MH_ERR_CORRUPT);
    }
}

static void filters_are_undone(void **state)
{
    mh_chain chain;
    uint8_t out[64];
    const int16_t steps[] = {5, -2, -4, 30000, 30000}, sums[] = {5, 3, -1, 29999, -5537};
    const int16_t stored[] = {-10, 0, 25};
    const float values[] = {272.15F, 273.15F, 275.65F};
    (void)state;
    mh_chain_init(&chain, 12);
    add(&chain, "shuffle", "{\"elementsize\": 4}");
    assert_int_equal(decode(&chain, "aeibfjcgkdhl", 12, out), MH_OK);
    assert_memory_equal(out, "abcdefghijkl", 12);
    mh_chain_init(&chain, sizeof sums);
    add(&chain, "delta", "{\"dtype\": \"<i2\", \"astype\": \"<i2\"}");
    assert_int_equal(decode(&chain, steps, sizeof steps, out), MH_OK);
    assert_memory_equal(out, sums, sizeof sums);
    mh_chain_init(&chain, sizeof values);
    add(&chain, "numcodecs.fixedscaleoffset",
        "{\"scale\": 10, \"offset\": 273.15, \"dtype\": \"<f4\", \"astype\": \"<i2\"}");
    assert_int_equal(mh_chain_stored_most(&chain), sizeof stored);
    assert_int_equal(decode(&chain, stored, sizeof stored, out), MH_OK);
    assert_memory_equal(out, values, sizeof values);
}

static void what_cannot_be_decoded_is_refused_by_name(void **state)
{
    static const struct {
        const char *name, *options, *said;
    } cases[] = {
        {"wavpack", NULL, "wavpack"},
        {"numcodecs.pcodec", NULL, "pcodec"},
        {"shuffle", "{\"elementsize\": 0}", "elementsize"},
        {"delta", "{\"dtype\": \">i4\"}", ">i4"},
        {"delta", "{\"dtype\": \"<i4\", \"astype\": \"<i2\"}", "delta"},
        {"delta", "{}", "no dtype"},
        {"fixedscaleoffset", "{\"dtype\": \"<f4\", \"scale\": 0, \"offset\": 1}", "scale"},
        {"fixedscaleoffset", "{\"dtype\": \"<M8\", \"scale\": 1, \"offset\": 1}", "<M8"},
        {"crc32c", "{\"location\": \"middle\"}", "location"},
    };
    mh_chain chain;
    (void)state;
    mh_chain_init(&chain, 8);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mh_json_view options = {NULL, 0};
        if (cases[i].options)
            options = text(cases[i].options);
        assert_int_not_equal(mh_chain_add(&chain, cases[i].name, options, &err), MH_OK);
        if (!strstr(err.message, cases[i].said))
            fail_msg("'%s' does not say '%s'", err.message, cases[i].said);
    }
    for (int i = 0; mh_byte_codecs[i]; i++) {
        if (!mh_byte_codecs[i]->lacks)
            continue;
        assert_int_equal(mh_chain_add(&chain, mh_byte_codecs[i]->name, text("{}"), &err),
                         MH_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, mh_byte_codecs[i]->lacks));
    }
}

/* Packs with the library itself; 0: this build lacks it. */
static size_t pack(const char *name, const uint8_t *from, uint8_t *into, size_t room)
{
    (void)name;
    (void)from;
    (void)into;
    (void)room;
#if MH_HAVE_ZSTD
    if (strcmp(name, "zstd") == 0)
        return ZSTD_compress(into, room, from, BYTES, 3);
#endif
#if MH_HAVE_LZ4
    if (strcmp(name, "lz4") == 0) {
        const uint8_t size[] = {BYTES & 255, BYTES >> 8, 0, 0};
        memcpy(into, size, 4);
        return 4 + (size_t)LZ4_compress_default((const char *)from, (char *)into + 4, BYTES,
                                                (int)room - 4);
    }
#endif
#if MH_HAVE_BLOSC
    if (strcmp(name, "blosc") == 0)
        return (size_t)blosc_compress_ctx(5, BLOSC_SHUFFLE, 4, BYTES, from, into, room, "lz4", 0,
                                          1);
#endif
#if MH_HAVE_DEFLATE
    if (strcmp(name, "gzip") == 0 || strcmp(name, "zlib") == 0) {
        struct libdeflate_compressor *packer = libdeflate_alloc_compressor(6);
        size_t size = name[0] == 'g' ? libdeflate_gzip_compress(packer, from, BYTES, into, room)
                                     : libdeflate_zlib_compress(packer, from, BYTES, into, room);
        libdeflate_free_compressor(packer);
        return size;
    }
#endif
    return 0;
}

/* Of chunks that are too long, too short or cut off nothing is taken. */
static void compressors_give_exactly_what_is_due(void **state)
{
    static const char *const names[] = {"zstd", "lz4", "blosc", "gzip", "zlib"};
    uint8_t raw[BYTES], packed[2 * BYTES], out[2 * BYTES];
    mh_chain chain;
    (void)state;
    pattern(raw, BYTES);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t size = pack(names[i], raw, packed, sizeof packed);
        if (size == 0)
            continue;
        for (int off = -1; off <= 1; off++) {
            mh_chain_init(&chain, (uint64_t)((int)BYTES + off));
            add(&chain, names[i], "{}");
            assert_int_equal(decode(&chain, packed, size, out), off ? MH_ERR_CORRUPT : MH_OK);
            if (off)
                assert_non_null(strstr(err.message, names[i]));
        }
        mh_chain_init(&chain, BYTES);
        add(&chain, names[i], "{}");
        assert_int_equal(decode(&chain, packed, size, out), MH_OK);
        assert_memory_equal(out, raw, BYTES);
        for (size_t cut = 0; cut < size; cut += 1 + cut / 8)
            assert_int_equal(decode(&chain, packed, cut, out), MH_ERR_CORRUPT);
    }
}

static void codecs_stand_behind_each_other(void **state)
{
    uint8_t raw[BYTES], shuffled[BYTES], packed[2 * BYTES], out[BYTES];
    mh_chain chain;
    (void)state;
    pattern(raw, BYTES);
    for (size_t i = 0; i < BYTES; i++)
        shuffled[i % 4 * (BYTES / 4) + i / 4] = raw[i];
    size_t size = pack("zstd", shuffled, packed, sizeof packed);
    if (size == 0)
        skip(); /* no zstd */
    uint32_t sum = mh_crc32c(packed, size);
    for (int i = 0; i < 4; i++)
        packed[size + (size_t)i] = (uint8_t)(sum >> 8 * i);
    mh_chain_init(&chain, BYTES);
    add(&chain, "shuffle", "{\"elementsize\": 4}");
    add(&chain, "zstd", "{}");
    add(&chain, "crc32c", NULL);
    assert_int_equal(decode(&chain, packed, size + 4, out), MH_OK);
    assert_memory_equal(out, raw, BYTES);
    packed[size / 2] ^= 1;
    assert_int_equal(decode(&chain, packed, size + 4, out), MH_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "crc32c"));
}

static void no_memory_is_an_error(void **state)
{
    mh_chain chain;
    const mh_chain *chains[] = {&chain, NULL};
    mh_chain_room *room;
    (void)state;
    mh_chain_init(&chain, 64);
    add(&chain, "shuffle", "{}");
    add(&chain, "crc32c", NULL);
    uint64_t live = mh_alloc_live();
    for (uint64_t nth = 1; nth <= 3; nth++) {
        mh_alloc_fail_at(nth, 1);
        assert_int_equal(mh_chain_room_new(&room, chains, 2, &err), MH_ERR_NOMEM);
        mh_alloc_fail_at(0, 0);
        assert_int_equal(mh_alloc_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_is_that_of_rfc_3720),
        cmocka_unit_test(a_chain_of_nothing_wants_exactly_its_bytes),
        cmocka_unit_test(a_wrong_checksum_is_found),
        cmocka_unit_test(filters_are_undone),
        cmocka_unit_test(what_cannot_be_decoded_is_refused_by_name),
        cmocka_unit_test(compressors_give_exactly_what_is_due),
        cmocka_unit_test(codecs_stand_behind_each_other),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
