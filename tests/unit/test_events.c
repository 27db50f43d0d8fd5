/* test_events.c - event rings: one thread, two threads, full and damaged ones
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics/events.h"
#include "sys/thread.h"
#include "unit.h"
#include <sched.h>

#define CAPACITY 64

/* Where the counters lie: the second and the third cache line (see the struct in events.c). */
#define HEAD_AT 64
#define TAIL_AT 128

static _Alignas(64) unsigned char memory[8192];

static mh_event_ring *fresh(void)
{
    memset(memory, 0, sizeof memory);
    assert_true(mh_event_ring_bytes(CAPACITY) <= sizeof memory);
    mh_event_ring *ring = mh_event_ring_init(memory, CAPACITY, 7);
    assert_non_null(ring);
    return ring;
}

static void put(mh_event_ring *ring, uint64_t number)
{
    mh_event_ring_put(ring, MH_EVENT_SAMPLE, number, (uint32_t)(number * 3), number * 5,
                      number * 7);
}

static void check(const mh_event *event, uint64_t number)
{
    assert_int_equal(event->batch, number);
    assert_int_equal(event->value, (uint32_t)(number * 3));
    assert_int_equal(event->start_ns, number * 5);
    assert_int_equal(event->duration_ns, number * 7);
    assert_int_equal(event->kind, MH_EVENT_SAMPLE);
    assert_int_equal(event->writer, 7);
}

static void sizes_are_whole_lines(void **state)
{
    (void)state;
    for (uint32_t capacity = 1; capacity <= 4096; capacity *= 2) {
        size_t bytes = mh_event_ring_bytes(capacity);
        assert_int_equal(bytes % 64, 0);
        assert_true(bytes >= 192 + (size_t)capacity * 32);
    }
}

static void what_goes_in_comes_out_in_order(void **state)
{
    (void)state;
    mh_event out[CAPACITY];
    mh_event_ring *ring = fresh();
    uint64_t in = 0, seen = 0;
    assert_int_equal(mh_event_ring_drain(ring, out, CAPACITY), 0);
    for (uint32_t round = 0; round < 500; round++) {
        for (uint32_t more = 0; more < round % CAPACITY; more++)
            put(ring, in++);
        while (seen < in) {
            uint32_t got = mh_event_ring_drain(ring, out, 1 + round % 10);
            assert_in_range(got, 1, 1 + round % 10);
            for (uint32_t at = 0; at < got; at++)
                check(&out[at], seen++);
        }
    }
    assert_int_equal(mh_event_ring_lost(ring), 0);
}

static void a_full_ring_drops_the_newest_and_counts(void **state)
{
    (void)state;
    mh_event out[CAPACITY + 1];
    mh_event_ring *ring = fresh();
    for (uint64_t number = 0; number < CAPACITY + 10; number++)
        put(ring, number);
    assert_int_equal(mh_event_ring_lost(ring), 10);
    assert_int_equal(mh_event_ring_drain(ring, out, CAPACITY + 1), CAPACITY);
    for (uint64_t number = 0; number < CAPACITY; number++)
        check(&out[number], number);
    put(ring, 99);
    assert_int_equal(mh_event_ring_drain(ring, out, CAPACITY), 1);
    check(&out[0], 99);
    assert_int_equal(mh_event_ring_lost(ring), 10);
}

static void only_a_ring_can_be_attached(void **state)
{
    (void)state;
    mh_event_ring *ring = fresh();
    size_t bytes = mh_event_ring_bytes(CAPACITY);
    assert_ptr_equal(mh_event_ring_attach(memory, bytes), ring);
    assert_ptr_equal(mh_event_ring_attach(memory, sizeof memory), ring);
    assert_null(mh_event_ring_attach(memory, bytes - 1));
    assert_null(mh_event_ring_attach(memory, 8));
    assert_null(mh_event_ring_attach(memory, 0));
    assert_null(mh_event_ring_attach(NULL, bytes));
    assert_null(mh_event_ring_attach(memory + 32, bytes));
    for (int byte = 0; byte < 14; byte++) { /* check, capacity, writer */
        memory[byte] ^= 1;
        assert_null(mh_event_ring_attach(memory, bytes));
        memory[byte] ^= 1;
    }
    assert_ptr_equal(mh_event_ring_attach(memory, bytes), ring);
}

static void only_powers_of_two_make_a_ring(void **state)
{
    (void)state;
    assert_null(mh_event_ring_init(memory, 0, 1));
    assert_null(mh_event_ring_init(memory, 3, 1));
    assert_null(mh_event_ring_init(memory, UINT32_C(1) << 31, 1));
    assert_null(mh_event_ring_init(memory + 8, 4, 1));
    assert_null(mh_event_ring_init(NULL, 4, 1));
}

static void damaged_counters_give_nothing(void **state)
{
    (void)state;
    static const uint64_t wrong[] = {UINT64_MAX, CAPACITY + 6, UINT64_C(1) << 63, 4};
    static const size_t places[] = {HEAD_AT, TAIL_AT};
    mh_event out[CAPACITY];
    for (size_t place = 0; place < 2; place++) {
        for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++) {
            mh_event_ring *ring = fresh();
            for (uint64_t number = 0; number < 5; number++)
                put(ring, number);
            assert_int_equal(mh_event_ring_drain(ring, out, CAPACITY), 5);
            uint64_t value = place == 0 || wrong[at] != 4 ? wrong[at] : 6;
            memcpy(memory + places[place], &value, sizeof value);
            assert_int_equal(mh_event_ring_drain(ring, out, CAPACITY), 0);
            put(ring, 1); /* and the writer stays inside the ring */
        }
    }
    mh_event_ring *ring = fresh();
    put(ring, 1);
    memory[8] ^= 0xff; /* the capacity */
    assert_int_equal(mh_event_ring_drain(ring, out, CAPACITY), 0);
}

#define PUTS 200000

static void *write_all(void *ring)
{
    for (uint64_t number = 0; number < PUTS; number++) {
        put(ring, number);
        if (number % 50 == 0)
            sched_yield();
    }
    return NULL;
}

static void two_threads_lose_nothing_uncounted(void **state)
{
    (void)state;
    mh_event out[CAPACITY];
    mh_event_ring *ring = fresh();
    mh_thread writer;
    uint64_t seen = 0, next = 0;
    assert_int_equal(mh_thread_start(&writer, "writer", write_all, ring, NULL), MH_OK);
    while (seen + mh_event_ring_lost(ring) < PUTS) {
        uint32_t got = mh_event_ring_drain(ring, out, CAPACITY);
        for (uint32_t at = 0; at < got; at++) {
            assert_true(out[at].batch >= next); /* some may have been dropped in between */
            check(&out[at], out[at].batch);
            next = out[at].batch + 1;
        }
        seen += got;
        if (got == 0)
            sched_yield();
    }
    mh_thread_join(&writer);
    assert_int_equal(mh_event_ring_drain(ring, out, CAPACITY), 0);
    assert_int_equal(seen + mh_event_ring_lost(ring), PUTS);
    assert_true(seen >= CAPACITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_whole_lines),
        cmocka_unit_test(what_goes_in_comes_out_in_order),
        cmocka_unit_test(a_full_ring_drops_the_newest_and_counts),
        cmocka_unit_test(only_a_ring_can_be_attached),
        cmocka_unit_test(only_powers_of_two_make_a_ring),
        cmocka_unit_test(damaged_counters_give_nothing),
        cmocka_unit_test(two_threads_lose_nothing_uncounted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
