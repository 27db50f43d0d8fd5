/* test_link.c - a simulated link: its text, and reads that come late, in any order, or not at all
 * SPDX-License-Identifier: Apache-2.0
 */
#include "arrays.h"
#include "source/simulated.h"
#include "sys/clock.h"

#include <pthread.h>

static void a_link_is_read_from_its_text(void **state)
{
    mh_link link;
    mh_error err = {0};
    (void)state;
    assert_int_equal(mh_link_parse(&link, "latency=30ms,bandwidth=100MB/s,errors=0.1%", &err),
                     MH_OK);
    assert_int_equal(link.latency_ns, 30000000);
    assert_int_equal(link.bytes_per_second, 100000000);
    assert_true(link.error_rate > 0.00099 && link.error_rate < 0.00101);
    assert_int_equal(mh_link_parse(&link, "", &err), MH_OK);
    assert_int_equal(link.latency_ns, 0);
    static const char *const wrong[] = {
        "latency=30",     "latency=-1ms", "speed=3MB/s",   "errors=200%",
        "bandwidth=0B/s", "latency",      "latency=nanms", ",,"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(mh_link_parse(&link, wrong[i], &err), MH_ERR_INVALID);
}

#define READS 64u

typedef struct arrivals {
    pthread_mutex_t lock;
    pthread_cond_t all;
    uint32_t good, bad;
    uint32_t times[READS]; /* that each read was done */
} arrivals;

static void arrived(void *context, void *tag, uint64_t got, const mh_error *err)
{
    assert_true(err || got == 4);
    arrivals *seen = context;
    pthread_mutex_lock(&seen->lock);
    seen->good += err == NULL;
    seen->bad += err != NULL;
    seen->times[(uintptr_t)tag]++;
    pthread_cond_signal(&seen->all);
    pthread_mutex_unlock(&seen->lock);
}

/* Reads READS rows through a link; nanoseconds until all were done (0: it was closed before). */
static uint64_t read_through(const char *root, const mh_link *link, uint32_t in_flight,
                             uint32_t *rows, arrivals *seen, int wait)
{
    char path[256];
    mh_error err = {0};
    mh_source *files = NULL, *slow = NULL;
    (void)snprintf(path, sizeof path, "%s/r.npy", root);
    mh_object object = {.name = path};
    const mh_objects objects = {.list = &object, .count = 1};
    const mh_source_options options = {.in_flight = 1};
    assert_int_equal(mh_source_file.stat(&object, &options, &err), MH_OK);
    assert_int_equal(mh_source_file.open(&files, &objects, &options, &err), MH_OK);
    assert_int_equal(mh_source_simulate(&slow, files, link, in_flight, &err), MH_OK);
    mh_read reads[READS];
    for (uint32_t i = 0; i < READS; i++)
        reads[i] = (mh_read){.offset = 128 + i * 4u,
                             .size = 4,
                             .into = (uint8_t *)&rows[i],
                             .tag = (void *)(uintptr_t)i};
    *seen = (arrivals){.lock = PTHREAD_MUTEX_INITIALIZER, .all = PTHREAD_COND_INITIALIZER};
    uint64_t began = mh_clock_ns();
    assert_int_equal(mh_source_submit(slow, reads, READS, arrived, seen, &err), MH_OK);
    pthread_mutex_lock(&seen->lock);
    while (wait && seen->good + seen->bad < READS)
        pthread_cond_wait(&seen->all, &seen->lock);
    pthread_mutex_unlock(&seen->lock);
    uint64_t took = mh_clock_ns() - began;
    mh_source_close(slow);
    for (uint32_t i = 0; i < READS; i++)
        assert_int_equal(seen->times[i], 1); /* done comes exactly once, also when closed */
    return took;
}

static void reads_take_the_links_time(void **state)
{
    uint32_t rows[READS];
    arrivals seen;
    const mh_link link = {.latency_ns = 5000000};
    write_rows(*state, "r.npy", READS, 1, 3);
    /* 64 reads, 16 at a time: four turns. It may take longer, never less. */
    assert_true(read_through(*state, &link, 16, rows, &seen, 1) >= 4 * link.latency_ns);
    assert_int_equal(seen.good, READS);
    for (uint32_t i = 0; i < READS; i++)
        assert_int_equal(rows[i], cell(i, 0, 3));
}

static void the_same_reads_fail_each_time(void **state)
{
    uint32_t rows[READS];
    arrivals first, second;
    const mh_link link = {.error_rate = 0.3};
    write_rows(*state, "r.npy", READS, 1, 3);
    (void)read_through(*state, &link, 4, rows, &first, 1);
    (void)read_through(*state, &link, 16, rows, &second, 1);
    assert_int_equal(first.bad, second.bad);
    assert_true(first.bad > READS / 10 && first.bad < READS * 6 / 10);
}

static void a_closed_link_ends_every_read(void **state)
{
    uint32_t rows[READS];
    arrivals seen;
    const mh_link link = {.latency_ns = UINT64_C(60000000000)};
    write_rows(*state, "r.npy", READS, 1, 3);
    (void)read_through(*state, &link, 8, rows, &seen, 0);
    assert_int_equal(seen.bad, READS);
}

int main(void)
{
#define IN_A_TREE(test) cmocka_unit_test_setup_teardown(test, make_tree, remove_tree)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_is_read_from_its_text),
        IN_A_TREE(reads_take_the_links_time),
        IN_A_TREE(the_same_reads_fail_each_time),
        IN_A_TREE(a_closed_link_ends_every_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
