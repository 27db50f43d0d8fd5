/* test_npy_header.c - heads of .npy files: those NumPy writes, and damaged ones
 * SPDX-License-Identifier: Apache-2.0
 */
#include "arrays.h"
#include "format/npy_header.h"

static mh_status read_dict(const char *dict, mh_npy_header *out, mh_error *err)
{
    char head[512];
    size_t length = npy_head(head, sizeof head, dict);
    return mh_npy_header_read(out, (const uint8_t *)head, length, err);
}

static void types_are_dlpacks(void **state)
{
    static const struct {
        const char *type;
        uint8_t code, bits;
        int64_t last; /* of the shape: strings have one dimension more */
    } cases[] = {
        {"<f4", 2, 32, 5}, {"<f2", 2, 16, 5},   {"<i8", 0, 64, 5},     {"|u1", 1, 8, 5},
        {"|b1", 6, 8, 5},  {"<c16", 5, 128, 5}, {"<M8[ns]", 0, 64, 5}, {"<m8[D]", 0, 64, 5},
        {"|S7", 1, 8, 7},  {"<U3", 1, 8, 12},   {">i1", 0, 8, 5},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dict[128];
        mh_npy_header header;
        mh_error err = {0};
        (void)snprintf(dict, sizeof dict,
                       "{'descr': '%s', 'fortran_order': False, 'shape': (3, 5), }", cases[i].type);
        assert_int_equal(read_dict(dict, &header, &err), MH_OK);
        assert_int_equal(header.dtype.code, cases[i].code);
        assert_int_equal(header.dtype.bits, cases[i].bits);
        assert_int_equal(header.shape[header.dims - 1], cases[i].last);
        assert_int_equal(header.data_offset % 64, 0);
    }
}

static void what_is_not_read_is_refused_by_name(void **state)
{
    static const struct {
        const char *dict;
        mh_status code;
        const char *said;
    } cases[] = {
        {"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", MH_ERR_UNSUPPORTED, "objects"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }", MH_ERR_UNSUPPORTED,
         "byte order"},
        {"{'descr': '<f16', 'fortran_order': False, 'shape': (3,), }", MH_ERR_UNSUPPORTED, "<f16"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }", MH_ERR_UNSUPPORTED,
         "Fortran"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", MH_ERR_UNSUPPORTED,
         "members"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, -4), }", MH_ERR_CORRUPT, "shape"},
        {"{'descr': '<f4', 'fortran_order': False, }", MH_ERR_CORRUPT, "missing"},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (3,), }", MH_ERR_CORRUPT, "neither"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999, 9999999999), }",
         MH_ERR_CORRUPT, "too large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
         MH_ERR_CORRUPT, "too large"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (3,), }", MH_ERR_CORRUPT, "repeated"},
        {"not a dict", MH_ERR_CORRUPT, "not a dict"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mh_npy_header header;
        mh_error err = {0};
        assert_int_equal(read_dict(cases[i].dict, &header, &err), cases[i].code);
        if (!strstr(err.message, cases[i].said))
            fail_msg("'%s' does not say '%s'", err.message, cases[i].said);
    }
}

static void every_cut_is_noticed(void **state)
{
    char head[256];
    mh_npy_header header;
    mh_error err;
    (void)state;
    size_t length =
        npy_head(head, sizeof head, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
    for (size_t size = 0; size < length; size++) {
        uint8_t *exact = malloc(size ? size : 1); /* so that a sanitizer sees a read beyond it */
        assert_non_null(exact);
        memcpy(exact, head, size);
        assert_int_equal(mh_npy_header_read(&header, exact, size, &err), MH_ERR_CORRUPT);
        free(exact);
    }
    assert_int_equal(mh_npy_header_read(&header, (uint8_t *)head, length, &err), MH_OK);
    assert_int_equal(header.data_bytes, 48);
}

static void later_versions_have_longer_lengths(void **state)
{
    const char *dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n";
    uint8_t head[128] = "\x93NUMPY\x02\x00";
    mh_npy_header header;
    mh_error err;
    (void)state;
    head[8] = (uint8_t)strlen(dict);
    memcpy(head + 12, dict, strlen(dict));
    assert_int_equal(mh_npy_header_read(&header, head, 12 + strlen(dict), &err), MH_OK);
    assert_int_equal(header.dims, 0);
    assert_int_equal(header.data_offset, 12 + strlen(dict));
    head[6] = 4;
    assert_int_equal(mh_npy_header_read(&header, head, sizeof head, &err), MH_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_dlpacks),
        cmocka_unit_test(what_is_not_read_is_refused_by_name),
        cmocka_unit_test(every_cut_is_noticed),
        cmocka_unit_test(later_versions_have_longer_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
