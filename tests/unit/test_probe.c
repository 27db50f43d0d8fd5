/* test_probe.c - what is measured, and that nothing is left behind
 * SPDX-License-Identifier: Apache-2.0
 *
 * argv[1] is the directory of the stand-in for the CUDA driver; as in test_gpu.c the test runs
 * itself again with it.
 */
#include "observe/probe.h"
#include "unit.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>

#define NOBODY 65534
#define NO_DRIVER 77

static const char *program, *stand_in;

/* A file of so many KiB that is no hole. */
static void write_file(const char *root, const char *name, int kib)
{
    char path[128], block[1024];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    memset(block, 'x', sizeof block);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    while (kib--)
        assert_int_equal(fwrite(block, 1, sizeof block, file), sizeof block);
    assert_int_equal(fclose(file), 0);
}

static int entries_in(const char *root)
{
    int count = -2; /* "." and ".." */
    DIR *directory = opendir(root);
    assert_non_null(directory);
    while (readdir(directory))
        count++;
    (void)closedir(directory);
    return count;
}

static mh_probe_options options_of(const char *path)
{
    mh_probe_options options;
    mh_probe_options_init(&options);
    options.path = path;
    options.bytes = 2 << 20;
    options.seconds = 0.2;
    return options;
}

static mh_probe probed(const mh_probe_options *options)
{
    mh_probe probe;
    mh_error err = {0};
    if (mh_probe_run(&probe, options, &err) != MH_OK)
        fail_msg("no probe: %s", err.message);
    return probe;
}

static const mh_probe_tier *tier_of(const mh_probe *probe, const char *name)
{
    for (size_t at = 0; at < probe->tier_count; at++)
        if (strcmp(probe->tiers[at].name, name) == 0)
            return &probe->tiers[at];
    fail_msg("no tier '%s'", name);
    return NULL;
}

static int in_memory(const char *root)
{
    mh_probe_options options = options_of(root);
    mh_probe probe = probed(&options);
    return strstr(probe.tiers[2].how, "tmpfs") != NULL;
}

static void a_directory_is_measured_and_left_empty(void **state)
{
    mh_probe_options options = options_of(*state);
    mh_probe probe = probed(&options);
    assert_int_equal(probe.tier_count, 5);
    assert_string_equal(probe.tiers[0].name, "memory copy");
    assert_string_equal(probe.tiers[1].name, "page cache");
    assert_int_equal(probe.bytes, options.bytes);
    assert_non_null(strstr(probe.file, "a temporary file in "));
    for (size_t at = 0; at < probe.tier_count; at++) {
        const mh_probe_tier *tier = &probe.tiers[at];
        assert_true(*tier->how);
        assert_true((tier->mb_per_s > 0) == (tier->latency_us > 0));
        assert_true(tier->mb_per_s > 0 || strncmp(tier->how, "not measured: ", 14) == 0);
    }
    assert_true(probe.tiers[0].latency_us > 1e-4); /* no memory answers in 0.1 ns */
    assert_int_equal(entries_in(*state), 0);
}

static void storage_is_read_past_the_page_cache(void **state)
{
    if (in_memory(*state))
        skip();
    mh_probe_options options = options_of(*state);
    mh_probe probe = probed(&options);
    const char *kind = *probe.network ? "network" : "disk";
    char name[32];
    for (int random = 0; random < 2; random++) {
        (void)snprintf(name, sizeof name, "%s %s", kind, random ? "random" : "sequential");
        const mh_probe_tier *tier = tier_of(&probe, name);
        assert_true(tier->mb_per_s > 0);
        assert_non_null(strstr(tier->how, random ? "of 4 KiB, anywhere" : "of 1024 KiB, one"));
        assert_non_null(strstr(tier->how, "page cache"));
        assert_null(strstr(tier->how, "from the page cache"));
    }
}

static void a_file_is_only_read(void **state)
{
    char path[128];
    struct stat before, after;
    write_file(*state, "shard.tar", 300);
    (void)snprintf(path, sizeof path, "%s/shard.tar", (char *)*state);
    assert_int_equal(stat(path, &before), 0);
    mh_probe_options options = options_of(path);
    mh_probe probe = probed(&options);
    assert_int_equal(stat(path, &after), 0);
    assert_string_equal(probe.file, path);
    assert_int_equal(probe.bytes, 300 << 10);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    assert_int_equal(entries_in(*state), 1);
}

static void read_only_takes_the_largest_file(void **state)
{
    write_file(*state, "small", 70);
    tree_write(*state, "deep/below/note", "text");
    write_file(*state, "deep/below/large", 200);
    mh_probe_options options = options_of(*state);
    options.read_only = 1;
    mh_probe probe = probed(&options);
    assert_non_null(strstr(probe.file, "/deep/below/large"));
    assert_int_equal(probe.bytes, 200 << 10);
}

static void refuses(const mh_probe_options *options, mh_status status, const char *why)
{
    mh_probe probe = {.tier_count = 77};
    mh_error err = {0};
    assert_int_equal(mh_probe_run(&probe, options, &err), status);
    if (!strstr(err.message, why))
        fail_msg("'%s' does not say '%s'", err.message, why);
    assert_int_equal(probe.tier_count, 77);
}

static void what_cannot_be_probed_is_named(void **state)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/none", (char *)*state);
    mh_probe_options options = options_of(path);
    refuses(&options, MH_ERR_NOT_FOUND, path);
    options = options_of(*state);
    options.read_only = 1;
    refuses(&options, MH_ERR_NOT_FOUND, "holds no file of 64 KiB");
    write_file(*state, "small", 63);
    (void)snprintf(path, sizeof path, "%s/small", (char *)*state);
    options = options_of(path);
    refuses(&options, MH_ERR_NOT_FOUND, "not a file of 64 KiB");
    options = options_of("/dev/null");
    refuses(&options, MH_ERR_NOT_FOUND, "/dev/null");
    options = options_of(*state);
    options.bytes = 100;
    refuses(&options, MH_ERR_INVALID, "1 MiB or more");
    options = options_of(*state);
    options.seconds = 0;
    refuses(&options, MH_ERR_INVALID, "seconds");
    options.struct_size =
        offsetof(mh_probe_options, progress_arg); /* less than the first version */
    refuses(&options, MH_ERR_INVALID, "mh_probe_options_init");
    options = options_of(NULL);
    refuses(&options, MH_ERR_INVALID, "a path");
}

static void a_full_disk_is_refused_before_anything_is_written(void **state)
{
    mh_probe_options options = options_of(*state);
    mh_error err = {0};
    mh_probe probe;
    options.bytes = UINT64_C(1) << 60;
    assert_int_equal(mh_probe_run(&probe, &options, &err), MH_ERR_IO);
    assert_int_equal(err.sys_errno, ENOSPC);
    assert_non_null(strstr(err.message, "the probe needs 1152921504607 MB"));
    assert_int_equal(entries_in(*state), 0);
}

static void what_was_printed_is_read_again(void **state)
{
    char path[128];
    mh_probe probe = {0};
    mh_error err;
    tree_write(*state, "probe.json",
               "{\"path\": \"/data\", \"file\": \"/data/\\\"a\\\"\", \"bytes\": 4096, \"network\": "
               "\"nfs4 at /data\", \"new\": [{}], \"tiers\": [{\"name\": \"network sequential\", "
               "\"mb_per_s\": 110.5, \"latency_us\": 9, \"how\": \"x\", \"more\": {\"a\": 1}}, "
               "{\"name\": \"host to device\", \"mb_per_s\": null, \"latency_us\": null}]}\n");
    (void)snprintf(path, sizeof path, "%s/probe.json", (char *)*state);
    assert_int_equal(mh_probe_read(&probe, path, &err), MH_OK);
    assert_int_equal(probe.tier_count, 2);
    assert_string_equal(probe.file, "/data/\"a\"");
    assert_string_equal(probe.network, "nfs4 at /data");
    assert_int_equal(probe.bytes, 4096);
    assert_float_equal(mh_probe_tier_find(&probe, "sequential")->mb_per_s, 110.5, 1e-9);
    assert_true(mh_probe_tier_find(&probe, "device")->mb_per_s < 0);
    assert_null(mh_probe_tier_find(&probe, "random"));
}

static void other_files_are_no_probe(void **state)
{
    static const char *const texts[] = {
        "",
        "[]",
        "{}",
        "{\"tiers\": []}",
        "{\"tiers\": 7}",
        "{\"tiers\": [{\"mb_per_s\": 1}]}",
        "{\"tiers\": [{\"name\": \"a\", \"mb_per_s\": \"fast\"}]}",
        "{\"tiers\": [{\"name\": \"a\", \"mb_per_s\": -1}]}",
        "{\"tiers\": [{\"name\": \"a\"}",
        "{\"tiers\": [{\"name\": \"a\"}]} x",
    };
    char path[128];
    (void)snprintf(path, sizeof path, "%s/probe.json", (char *)*state);
    for (size_t at = 0; at < sizeof texts / sizeof *texts; at++) {
        mh_probe probe = {.tier_count = 77};
        mh_error err = {0};
        tree_write(*state, "probe.json", texts[at]);
        if (mh_probe_read(&probe, path, &err) != MH_ERR_CORRUPT)
            fail_msg("taken: %s", texts[at]);
        assert_int_equal(probe.tier_count, 77);
        assert_non_null(strstr(err.message, path));
    }
    mh_probe probe;
    assert_int_equal(mh_probe_read(&probe, "/nonexistent", NULL), MH_ERR_NOT_FOUND);
}

/* Runs `task` in a process of its own that is no root. */
static int as_nobody(int (*task)(const char *), const char *root)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0)
            _exit(100);
        _exit(task(root));
    }
    return child_code(pid);
}

static int is_refused(const char *root)
{
    mh_probe_options options = options_of(root);
    mh_error err = {0};
    mh_probe probe;
    return mh_probe_run(&probe, &options, &err) == MH_ERR_IO && err.sys_errno == EACCES ? 0 : 1;
}

static int reads_what_is_there(const char *root)
{
    mh_probe_options options = options_of(root);
    mh_probe probe;
    return mh_probe_run(&probe, &options, NULL) == MH_OK && strstr(probe.file, "/shard") ? 0 : 1;
}

static void an_unreadable_directory_is_refused(void **state)
{
    assert_int_equal(chmod(*state, 0), 0);
    assert_int_equal(as_nobody(is_refused, *state), 0);
    assert_int_equal(chmod(*state, 0700), 0);
}

static void a_directory_that_may_not_be_written_is_read(void **state)
{
    write_file(*state, "shard", 100);
    assert_int_equal(chmod(*state, 0555), 0);
    assert_int_equal(as_nobody(reads_what_is_there, *state), 0);
    assert_int_equal(chmod(*state, 0700), 0);
}

static int stop(void *calls, const char *what, double share)
{
    assert_true(*what && share >= 0);
    return ++*(int *)calls == 3;
}

static void it_stops_when_told(void **state)
{
    int calls = 0;
    mh_probe_options options = options_of(*state);
    options.bytes = 8 << 20;
    options.progress = stop;
    options.progress_arg = &calls;
    refuses(&options, MH_ERR_CLOSED, "stopped");
    assert_int_equal(calls, 3);
    assert_int_equal(entries_in(*state), 0);
}

static int die(void *signal_number, const char *what, double share)
{
    (void)what;
    (void)share;
    return raise(*(int *)signal_number);
}

static void nothing_stays_behind_when_it_is_killed(void **state)
{
    static const int signals[] = {SIGINT, SIGKILL};
    for (size_t at = 0; at < 2; at++) {
        int number = signals[at], status;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            mh_probe_options options = options_of(*state);
            mh_probe probe;
            options.progress = die;
            options.progress_arg = &number;
            (void)signal(SIGINT, SIG_DFL);
            _exit(mh_probe_run(&probe, &options, NULL) == MH_OK ? 1 : 2);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == number);
        assert_int_equal(entries_in(*state), 0);
    }
}

/* The second run: 0 when the stand-in was measured. */
static int look(void)
{
    mh_probe_tier tier;
    mh_probe_device(&tier, 0.05);
    if (tier.mb_per_s < 0)
        return strstr(tier.how, "no CUDA driver") ? NO_DRIVER : 1;
    return tier.latency_us > 0 && strstr(tier.how, "pinned memory") ? 0 : 1;
}

static void a_device_is_measured_through_the_drivers_library(void **state)
{
    (void)state;
    assert_int_equal(look_again(program, stand_in), 0);
}

static void no_driver_is_told(void **state)
{
    (void)state;
    if (access("/dev/nvidiactl", F_OK) == 0)
        skip();
    assert_int_equal(look_again(program, "/nonexistent"), NO_DRIVER);
}

static char root[64];

static int set_up(void **state)
{
    tree_make(root);
    *state = root;
    return 0;
}

static int tear_down(void **state)
{
    tree_remove(*state);
    return 0;
}

#define WITH_TREE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WITH_TREE(a_directory_is_measured_and_left_empty),
        WITH_TREE(storage_is_read_past_the_page_cache),
        WITH_TREE(a_file_is_only_read),
        WITH_TREE(read_only_takes_the_largest_file),
        WITH_TREE(what_cannot_be_probed_is_named),
        WITH_TREE(a_full_disk_is_refused_before_anything_is_written),
        WITH_TREE(an_unreadable_directory_is_refused),
        WITH_TREE(a_directory_that_may_not_be_written_is_read),
        WITH_TREE(it_stops_when_told),
        WITH_TREE(what_was_printed_is_read_again),
        WITH_TREE(other_files_are_no_probe),
        WITH_TREE(nothing_stays_behind_when_it_is_killed),
        cmocka_unit_test(a_device_is_measured_through_the_drivers_library),
        cmocka_unit_test(no_driver_is_told),
    };
    if (argc != 2)
        return 2;
    if (strcmp(argv[1], "look") == 0)
        return look();
    program = argv[0];
    stand_in = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
