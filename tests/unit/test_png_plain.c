/* test_png_plain.c - which PNG files go without libpng, and that their rows are right
 * SPDX-License-Identifier: Apache-2.0
 */
#include "codec/png_plain.h"
#include "unit.h"

#include <libdeflate.h>

enum {
    WIDTH = 5,
    HEIGHT = 3,
    ROW = 3 * WIDTH,
    INTERLACED = 28,
    DATA = 33 /* where they are in the file */
};

typedef struct file {
    uint8_t bytes[1024];
    size_t size;
} file;

static void put_number(uint8_t *into, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        into[i] = (uint8_t)(number >> (24 - 8 * i));
}

static void put_chunk(file *to, const char *name, const uint8_t *data, size_t size)
{
    uint8_t *at = to->bytes + to->size;
    put_number(at, (uint32_t)size);
    memcpy(at + 4, name, 4);
    if (size)
        memcpy(at + 8, data, size);
    put_number(at + 8 + size, libdeflate_crc32(0, at + 4, size + 4));
    to->size += size + 12;
}

/* Three rows of colours: without a filter, with Sub, with Up. */
static file usual(void)
{
    static const uint8_t header[13] = {0, 0, 0, WIDTH, 0, 0, 0, HEIGHT, 8, 2, 0, 0, 0};
    file made = {.bytes = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, .size = 8};
    uint8_t stored[HEIGHT * (ROW + 1)], packed[256];
    for (int row = 0; row < HEIGHT; row++)
        for (int i = 0; i <= ROW; i++)
            stored[row * (ROW + 1) + i] = (uint8_t)(i ? 10 * row + i : row);
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(6);
    size_t size =
        libdeflate_zlib_compress(compressor, stored, sizeof stored, packed, sizeof packed);
    libdeflate_free_compressor(compressor);
    assert_true(size > 0);
    put_chunk(&made, "IHDR", header, sizeof header);
    put_chunk(&made, "IDAT", packed, size);
    put_chunk(&made, "IEND", NULL, 0);
    return made;
}

static bool begins(mh_png_plain *plain, const file *from)
{
    mh_png_rows rows = {.pixels = MH_PIXELS_RGB,
                        .picture = {.kind = MH_PICTURE_PNG,
                                    .width = WIDTH,
                                    .height = HEIGHT,
                                    .channels = 3,
                                    .bits = from->bytes[INTERLACED - 4]}};
    rows.picture.progressive = from->bytes[INTERLACED];
    return mh_png_plain_begin(plain, &rows, from->bytes, from->size);
}

static void rows_come_without_their_filters(void **state)
{
    (void)state;
    mh_png_plain plain = {0};
    file from = usual();
    assert_true(begins(&plain, &from));
    const uint8_t *first = mh_png_plain_row(&plain), *second = mh_png_plain_row(&plain);
    const uint8_t *third = mh_png_plain_row(&plain);
    for (int i = 0; i < ROW; i++) {
        assert_int_equal(first[i], i + 1);
        assert_int_equal(second[i], 11 + i + (i < 3 ? 0 : second[i - 3]));
        assert_int_equal(third[i], (21 + i + second[i]) % 256);
    }
    mh_png_plain_free(&plain);
}

static void what_is_not_usual_is_for_libpng(void **state)
{
    (void)state;
    mh_png_plain plain = {0};
    for (int odd = 0; odd < 4; odd++) {
        file from = usual();
        if (odd == 0)
            from.bytes[DATA + 10] ^= 1; /* the checksum is another's */
        if (odd == 1)
            from.size -= 12; /* no end */
        if (odd == 2)
            memcpy(from.bytes + DATA + 4, "iDAT", 4); /* no data */
        if (odd == 3)
            from.bytes[INTERLACED] = 1;
        assert_false(begins(&plain, &from));
    }
    file from = usual();
    assert_true(begins(&plain, &from)); /* and it goes on after that */
    mh_png_plain_free(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_without_their_filters),
        cmocka_unit_test(what_is_not_usual_is_for_libpng),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
