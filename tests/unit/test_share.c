/* test_share.c - the positions of each rank against the layout written out
 * SPDX-License-Identifier: Apache-2.0
 */
#include "order/keyed.h"
#include "order/share.h"
#include "unit.h"

#define COUNT_MOST 24
#define RANKS_MOST 9

static mh_share share_of(uint64_t count, uint64_t start, uint64_t ranks, uint64_t rank, int mode)
{
    mh_share share;
    assert_int_equal(mh_share_init(&share, count, start, ranks, rank, (mh_share_mode)mode, NULL),
                     MH_OK);
    return share;
}

/* The positions from `start` on, one after the other over all ranks, as they should be. */
static uint64_t dealt_out(uint64_t count, uint64_t start, uint64_t ranks, int mode)
{
    uint64_t left = count - start;
    if (mode == MH_SHARE_PAD)
        while (left % ranks)
            left++;
    if (mode == MH_SHARE_CUT)
        while (left % ranks)
            left--;
    return left;
}

static void check_world(uint64_t count, uint64_t start, uint64_t ranks, int mode)
{
    uint64_t total = dealt_out(count, start, ranks, mode);
    uint64_t lengths = 0;
    uint32_t times[COUNT_MOST] = {0};
    for (uint64_t rank = 0; rank < ranks; rank++) {
        mh_share share = share_of(count, start, ranks, rank, mode);
        lengths += share.length;
        for (uint64_t nth = 0; nth < share.length; nth++) {
            uint64_t place = nth * ranks + rank; /* among all that are dealt out */
            assert_true(place < total);
            assert_int_equal(mh_share_at(&share, nth), (start + place) % count);
            times[(start + place) % count]++;
        }
    }
    assert_int_equal(lengths, total);
    for (uint64_t position = start; position < count; position++)
        assert_true(mode == MH_SHARE_CUT ? times[position] <= 1 : times[position] >= 1);
    if (mode == MH_SHARE_UNEVEN)
        for (uint64_t position = 0; position < count; position++)
            assert_int_equal(times[position], position >= start);
}

static void every_world_shares_what_remains(void **state)
{
    (void)state;
    for (uint64_t count = 0; count <= COUNT_MOST; count++)
        for (uint64_t start = 0; start <= count; start++)
            for (uint64_t ranks = 1; ranks <= RANKS_MOST; ranks++)
                for (int mode = 0; mode < MH_SHARE_MODES; mode++)
                    check_world(count, start, ranks, mode);
}

/* A rank that did `done` of its samples and begins again at done x ranks goes on as if it had not
 * stopped, padding included. */
static void the_same_world_goes_on_where_it_was(void **state)
{
    (void)state;
    for (uint64_t count = 1; count <= COUNT_MOST; count++) {
        for (uint64_t ranks = 1; ranks <= RANKS_MOST; ranks++) {
            for (int mode = 0; mode < MH_SHARE_MODES; mode++) {
                mh_share whole = share_of(count, 0, ranks, ranks - 1, mode);
                for (uint64_t done = 0; done < whole.length; done++) {
                    mh_share rest = share_of(count, done * ranks, ranks, ranks - 1, mode);
                    assert_int_equal(rest.length, whole.length - done);
                    for (uint64_t nth = 0; nth < rest.length; nth++)
                        assert_int_equal(mh_share_at(&rest, nth), mh_share_at(&whole, done + nth));
                }
            }
        }
    }
}

static void the_largest_numbers_do_not_overflow(void **state)
{
    (void)state;
    mh_share share = share_of(MH_ORDER_MOST, 0, MH_RANKS_MOST, MH_RANKS_MOST - 1, MH_SHARE_PAD);
    assert_true(share.length == MH_ORDER_MOST / MH_RANKS_MOST + 1);
    uint64_t last = share.length * MH_RANKS_MOST - 1;
    assert_true(last > MH_ORDER_MOST);
    assert_true(mh_share_at(&share, share.length - 1) == last - MH_ORDER_MOST);
    share = share_of(MH_ORDER_MOST, MH_ORDER_MOST, MH_RANKS_MOST, 0, MH_SHARE_PAD);
    assert_int_equal(share.length, 0);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    static const struct {
        uint64_t count, start, ranks, rank;
        int mode;
        const char *said;
    } rows[] = {
        {MH_ORDER_MOST + 1, 0, 1, 0, MH_SHARE_PAD, "more than 2^63"},
        {9, 0, 0, 0, MH_SHARE_PAD, "no rank 0 of 0"},
        {9, 0, 4, 4, MH_SHARE_PAD, "no rank 4 of 4"},
        {9, 0, (uint64_t)MH_RANKS_MOST + 1, 0, MH_SHARE_PAD, "no rank 0 of 2147483648"},
        {9, 10, 4, 0, MH_SHARE_PAD, "position 10 is beyond an epoch of 9"},
        {9, 0, 4, 0, MH_SHARE_MODES, "unknown way 3"},
        {9, 0, 4, 0, -1, "unknown way -1"},
    };
    for (size_t at = 0; at < sizeof rows / sizeof *rows; at++) {
        mh_share share = {.length = 77};
        mh_error err;
        assert_int_equal(mh_share_init(&share, rows[at].count, rows[at].start, rows[at].ranks,
                                       rows[at].rank, (mh_share_mode)rows[at].mode, &err),
                         MH_ERR_INVALID);
        assert_non_null(strstr(err.message, rows[at].said));
        assert_int_equal(share.length, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_world_shares_what_remains),
        cmocka_unit_test(the_same_world_goes_on_where_it_was),
        cmocka_unit_test(the_largest_numbers_do_not_overflow),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
