/* test_error.c - status names and error messages
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "unit.h"
#include <millhead/millhead.h>

static void every_status_has_a_name(void **state)
{
    (void)state;
    for (int code = 0; code < MH_STATUS_COUNT; code++) {
        assert_true(strlen(mh_status_name((mh_status)code)) > 0);
        assert_non_null(mh_status_exception((mh_status)code));
    }
    assert_string_equal(mh_status_name(MH_ERR_NOMEM), "out of memory");
    assert_string_equal(mh_status_exception(MH_ERR_NOMEM), "MemoryError");
    assert_string_equal(mh_status_exception(MH_ERR_TIMEOUT), "TimeoutError");
    assert_string_equal(mh_status_name(MH_ERR_FORKED), "used after a fork");
    assert_string_equal(mh_status_exception(MH_ERR_FORKED), "Error");
}

static void a_status_out_of_range_has_a_name_too(void **state)
{
    (void)state;
    assert_string_equal(mh_status_name(MH_STATUS_COUNT), "unknown status");
    assert_string_equal(mh_status_name((mh_status)-1), "unknown status");
    assert_string_equal(mh_status_exception((mh_status)1000), "Error");
}

/* A name is the `code` of a Python exception, by which programs tell errors apart. */
static void no_two_statuses_share_a_name(void **state)
{
    (void)state;
    for (int code = 0; code < MH_STATUS_COUNT; code++) {
        for (int other = 0; other < code; other++)
            assert_string_not_equal(mh_status_name((mh_status)code),
                                    mh_status_name((mh_status)other));
    }
}

static void a_failure_fills_the_struct(void **state)
{
    (void)state;
    mh_error err;
    memset(&err, 0xff, sizeof err);
    assert_int_equal(mh_fail(&err, MH_ERR_CORRUPT, "record %d of %s", 3, "x"), MH_ERR_CORRUPT);
    assert_int_equal(err.code, MH_ERR_CORRUPT);
    assert_int_equal(err.sys_errno, 0);
    assert_string_equal(err.message, "record 3 of x");
}

static void a_place_is_added_to_a_failure(void **state)
{
    (void)state;
    mh_error err;
    char path[400];
    memset(path, 'x', sizeof path);
    memcpy(path + sizeof path - 6, "/end.", 6); /* its 0 too */
    (void)mh_fail(&err, MH_ERR_IO, "short");
    assert_true(err.place.sample == MH_NOWHERE && err.place.offset == MH_NOWHERE);
    assert_string_equal(err.place.source, "");
    assert_int_equal(mh_error_at(&err, MH_ERR_IO, path, 12), MH_ERR_IO);
    mh_error_at_sample(&err, 7);
    assert_int_equal(err.place.sample, 7);
    assert_int_equal(err.place.offset, 12);
    assert_int_equal(strlen(err.place.source), sizeof err.place.source - 1);
    assert_non_null(strstr(err.place.source, "/end."));
    assert_string_equal(err.message, "sample 7: short");
    assert_int_equal(mh_error_at(NULL, MH_ERR_IO, path, 0), MH_ERR_IO);
    mh_error_at_sample(NULL, 0);
}

static void a_failed_call_keeps_its_errno(void **state)
{
    (void)state;
    mh_error err;
    assert_int_equal(mh_fail_sys(&err, MH_ERR_IO, ENOENT, "open %s", "x"), MH_ERR_IO);
    assert_int_equal(err.sys_errno, ENOENT);
    assert_string_equal(err.message, "open x: No such file or directory");
}

static void nobody_has_to_listen(void **state)
{
    (void)state;
    assert_int_equal(mh_fail(NULL, MH_ERR_IO, "x"), MH_ERR_IO);
    assert_int_equal(mh_fail_sys(NULL, MH_ERR_IO, EIO, "x"), MH_ERR_IO);
    mh_error_prefix(NULL, "x");
}

static void places_are_put_in_front(void **state)
{
    (void)state;
    mh_error err;
    (void)mh_fail(&err, MH_ERR_IO, "short read");
    mh_error_prefix(&err, "sample %d", 7);
    mh_error_prefix(&err, "worker %d", 3);
    assert_string_equal(err.message, "worker 3: sample 7: short read");
    assert_int_equal(err.code, MH_ERR_IO);
}

static void long_texts_are_cut(void **state)
{
    (void)state;
    char text[2000];
    mh_error err;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)mh_fail(&err, MH_ERR_IO, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    (void)mh_fail_sys(&err, MH_ERR_IO, EIO, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    mh_error_prefix(&err, "here");
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_memory_equal(err.message, "here: aaa", 9);
    (void)mh_fail(&err, MH_ERR_IO, "the reason");
    mh_error_prefix(&err, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message / 2 + strlen("the reason"));
    assert_non_null(strstr(err.message, "aa: the reason"));
}

static mh_status passes_on(mh_status first, int *reached)
{
    MH_TRY(first);
    *reached = 1;
    return MH_OK;
}

static void try_returns_the_failure(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(passes_on(MH_ERR_CLOSED, &reached), MH_ERR_CLOSED);
    assert_int_equal(reached, 0);
    assert_int_equal(passes_on(MH_OK, &reached), MH_OK);
    assert_int_equal(reached, 1);
}

static void the_version_is_the_builds(void **state)
{
    (void)state;
    assert_string_equal(mh_version(), MH_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name),
        cmocka_unit_test(a_status_out_of_range_has_a_name_too),
        cmocka_unit_test(no_two_statuses_share_a_name),
        cmocka_unit_test(a_failure_fills_the_struct),
        cmocka_unit_test(a_place_is_added_to_a_failure),
        cmocka_unit_test(a_failed_call_keeps_its_errno),
        cmocka_unit_test(nobody_has_to_listen),
        cmocka_unit_test(places_are_put_in_front),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(try_returns_the_failure),
        cmocka_unit_test(the_version_is_the_builds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
