/* test_order.c - a shuffle and a share of it together
 * SPDX-License-Identifier: Apache-2.0
 */
#include "order/keyed.h"
#include "order/order.h"
#include "order/randperm.h"
#include "unit.h"

static mh_order *new_order(mh_order_kind kind, uint64_t count, uint64_t start, uint64_t ranks,
                           uint64_t rank)
{
    mh_share share;
    mh_order *order = NULL;
    assert_int_equal(mh_share_init(&share, count, start, ranks, rank, MH_SHARE_PAD, NULL), MH_OK);
    assert_int_equal(mh_order_new(&order, kind, 6, 2, &share, NULL), MH_OK);
    return order;
}

static void each_kind_is_shared_as_it_is(void **state)
{
    (void)state;
    mh_keyed keyed;
    mh_randperm *randperm = NULL;
    mh_keyed_init(&keyed, 23, 6, 2);
    assert_int_equal(mh_randperm_new(&randperm, 23, 6, NULL), MH_OK);
    for (uint64_t rank = 0; rank < 4; rank++) {
        mh_order *plain = new_order(MH_ORDER_SEQUENTIAL, 23, 5, 4, rank);
        mh_order *computed = new_order(MH_ORDER_KEYED, 23, 5, 4, rank);
        mh_order *torchs = new_order(MH_ORDER_TORCH, 23, 5, 4, rank);
        assert_int_equal(mh_order_length(plain), 5);
        for (uint64_t nth = 0; nth < 5; nth++) {
            uint64_t position = (5 + rank + 4 * nth) % 23;
            assert_int_equal(mh_order_at(plain, nth), position);
            assert_int_equal(mh_order_at(computed, nth), mh_keyed_at(&keyed, position));
            assert_int_equal(mh_order_at(torchs, nth), mh_randperm_at(randperm, position));
        }
        mh_order_free(plain);
        mh_order_free(computed);
        mh_order_free(torchs);
    }
    mh_randperm_free(randperm);
}

static void a_shuffle_entered_late_is_prepared_in_parts(void **state)
{
    (void)state;
    mh_order *order = new_order(MH_ORDER_TORCH, 300000, 200000, 1, 0);
    int parts = 1;
    while (!mh_order_prepare(order, 0))
        parts++;
    assert_int_equal(parts, 4); /* of 65536 */
    mh_order *other = new_order(MH_ORDER_TORCH, 300000, 0, 1, 0);
    assert_int_equal(mh_order_at(order, 0), mh_order_at(other, 200000));
    mh_order_free(order);
    mh_order_free(other);
    order = new_order(MH_ORDER_KEYED, 300000, 200000, 1, 0);
    assert_true(mh_order_prepare(order, 0));
    mh_order_free(order);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    mh_share share = {.count = MH_RANDPERM_MOST + 1, .ranks = 1};
    mh_order *order = NULL;
    mh_error err;
    assert_int_equal(mh_order_new(&order, MH_ORDER_KINDS, 0, 0, &share, &err), MH_ERR_INVALID);
    assert_int_equal(mh_order_new(&order, MH_ORDER_TORCH, 0, 0, &share, &err), MH_ERR_UNSUPPORTED);
    assert_null(order);
    mh_order_free(NULL);
}

static void make_and_use(void *kind)
{
    mh_share share = {.count = 50, .ranks = 1, .length = 50};
    mh_order *order = NULL;
    mh_status status = mh_order_new(&order, *(mh_order_kind *)kind, 1, 2, &share, NULL);
    if (status == MH_OK)
        assert_true(mh_order_at(order, 49) < 50);
    else
        assert_int_equal(status, MH_ERR_NOMEM);
    mh_order_free(order);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    for (mh_order_kind kind = MH_ORDER_SEQUENTIAL; kind < MH_ORDER_KINDS; kind++)
        each_allocation_fails(make_and_use, &kind);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_is_shared_as_it_is),
        cmocka_unit_test(a_shuffle_entered_late_is_prepared_in_parts),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
