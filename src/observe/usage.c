/* usage.c - what processes and the machine use, from /proc
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/usage.h"

#include "base/alloc.h"
#include "base/error.h"
#include "observe/waiting.h"
#include "sys/file.h"
#include "sys/parse.h"
#include "sys/span.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SECTOR_BYTES 512u /* the kernel's, whatever the disk's own */
#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

/* What does not fit is as good as not read. */
static uint64_t scaled(uint64_t value, uint64_t factor)
{
    return __builtin_mul_overflow(value, factor, &value) ? MH_NOT_READ : value;
}

static uint64_t added(uint64_t a, uint64_t b)
{
    return __builtin_add_overflow(a, b, &a) ? MH_NOT_READ : a;
}

static uint64_t ticks_ns(uint64_t ticks)
{
    long per_second = sysconf(_SC_CLK_TCK);
    return scaled(ticks, NS_PER_S / (uint64_t)(per_second > 0 ? per_second : 100));
}

/* Passes over `count` words, then reads a number. */
static bool number_after(mh_span *line, int count, uint64_t *out)
{
    mh_span word;
    for (int at = 0; at <= count; at++)
        if (!mh_span_word(line, &word))
            return false;
    return mh_span_number(word, out);
}

/* --- the texts of a process --- */

static void copy_name(char *out, size_t room, mh_span name)
{
    size_t size = name.size < room - 1 ? name.size : room - 1;
    memcpy(out, name.data, size);
    out[size] = '\0';
}

int mh_parse_process_stat(const char *text, size_t length, mh_process_stat *out)
{
    /* "PID (NAME) STATE PARENT ...": the name ends at the last parenthesis. */
    const char *open = memchr(text, '(', length);
    const char *close = open ? memrchr(open, ')', length - (size_t)(open - text)) : NULL;
    if (!close)
        return 0;
    mh_span head = {text, (size_t)(open - text)}, word;
    mh_span rest = {close + 1, length - (size_t)(close + 1 - text)};
    uint64_t pid, parent, user, system, threads, started, pages;
    if (!mh_span_word(&head, &word) || !mh_span_number(word, &pid) || pid > INT32_MAX ||
        !mh_span_word(&rest, &word) || word.size != 1)
        return 0;
    char state = *word.data;
    if (!number_after(&rest, 0, &parent) || parent > INT32_MAX || !number_after(&rest, 9, &user) ||
        !number_after(&rest, 0, &system) || !number_after(&rest, 4, &threads) ||
        !number_after(&rest, 1, &started) || !number_after(&rest, 1, &pages))
        return 0;
    *out = (mh_process_stat){
        .pid = (int)pid,
        .parent = (int)parent,
        .state = state,
        .cpu_ns = ticks_ns(added(user, system)),
        .started_ticks = started,
        .rss_bytes = scaled(pages, (uint64_t)sysconf(_SC_PAGESIZE)),
        .threads = threads > UINT32_MAX ? UINT32_MAX : (uint32_t)threads,
    };
    copy_name(out->name, sizeof out->name, (mh_span){open + 1, (size_t)(close - open - 1)});
    return 1;
}

int mh_parse_schedstat(const char *text, size_t length, uint64_t *cpu_ns, uint64_t *delay_ns)
{
    mh_span rest = {text, length};
    uint64_t cpu, delay;
    if (!number_after(&rest, 0, &cpu) || !number_after(&rest, 0, &delay))
        return 0;
    *cpu_ns = added(*cpu_ns, cpu);
    *delay_ns = added(*delay_ns, delay);
    return 1;
}

/* --- the texts of the machine --- */

int mh_parse_cpus(const char *text, size_t length, mh_system_usage *out)
{
    enum { USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL, KINDS };
    mh_span rest = {text, length}, line, word;
    uint64_t ticks[KINDS] = {0};
    uint32_t cpus = 0;
    bool found = false;
    while (mh_span_next(&rest, '\n', &line)) {
        if (!mh_span_word(&line, &word) || word.size < 3 || memcmp(word.data, "cpu", 3) != 0)
            continue;
        if (word.size > 3) {
            cpus++;
            continue;
        }
        for (int kind = 0; kind < KINDS; kind++) /* old kernels have fewer */
            found = (number_after(&line, 0, &ticks[kind]) && kind >= IOWAIT) || found;
    }
    if (!found)
        return 0;
    uint64_t busy = 0;
    for (int kind = 0; kind < KINDS; kind++)
        busy = added(busy, kind == IDLE || kind == IOWAIT ? 0 : ticks[kind]);
    out->cpus = cpus;
    out->busy_ns = ticks_ns(busy);
    out->idle_ns = ticks_ns(ticks[IDLE]);
    out->iowait_ns = ticks_ns(ticks[IOWAIT]);
    return 1;
}

static bool begins_with(mh_span word, const char *text)
{
    size_t size = strlen(text);
    return word.size >= size && memcmp(word.data, text, size) == 0;
}

/* sda1 after sda, nvme0n1p2 after nvme0n1: partitions follow their disk. */
static bool is_partition_of(mh_span name, const char *disk)
{
    if (!*disk || !begins_with(name, disk))
        return false;
    name.data += strlen(disk);
    name.size -= strlen(disk);
    uint64_t number;
    if (name.size > 1 && *name.data == 'p')
        name = (mh_span){name.data + 1, name.size - 1};
    return mh_span_number(name, &number);
}

static bool is_memory_disk(mh_span name)
{
    return begins_with(name, "loop") || begins_with(name, "ram") || begins_with(name, "zram");
}

int mh_parse_disks(const char *text, size_t length, mh_system_usage *out)
{
    mh_span rest = {text, length}, line, name;
    char whole[sizeof out->disks->name] = "";
    uint32_t count = 0;
    bool found = false;
    while (count < MH_DISKS_MOST && mh_span_next(&rest, '\n', &line)) {
        uint64_t minor, sectors, busy_ms;
        /* "MAJOR MINOR NAME" and counters; the third is sectors read, the tenth ms under way */
        if (!number_after(&line, 1, &minor) || !mh_span_word(&line, &name) ||
            name.size >= sizeof whole || memchr(name.data, '\0', name.size) ||
            !number_after(&line, 2, &sectors) || !number_after(&line, 6, &busy_ms))
            continue;
        found = true;
        if (is_memory_disk(name) || is_partition_of(name, whole))
            continue;
        copy_name(whole, sizeof whole, name);
        mh_disk_usage *disk = &out->disks[count++];
        *disk = (mh_disk_usage){.read_bytes = scaled(sectors, SECTOR_BYTES),
                                .busy_ns = scaled(busy_ms, NS_PER_MS)};
        memcpy(disk->name, whole, sizeof whole);
    }
    if (found)
        out->disk_count = count;
    return found;
}

int mh_parse_net(const char *text, size_t length, uint64_t *out_bytes)
{
    mh_span rest = {text, length}, line;
    uint64_t sum = 0;
    bool found = false;
    while (mh_span_next(&rest, '\n', &line)) {
        mh_span head = line, name;
        uint64_t bytes;
        /* "  eth0: BYTES ..."; with many digits no blank follows the colon */
        if (!memchr(line.data, ':', line.size) || !mh_span_next(&head, ':', &line) ||
            !mh_span_word(&line, &name) || !number_after(&head, 0, &bytes))
            continue;
        found = true;
        if (!mh_span_is(name, "lo"))
            sum = added(sum, bytes);
    }
    if (found)
        *out_bytes = sum;
    return found;
}

int mh_parse_pressure(const char *text, size_t length, uint64_t *out_ns)
{
    mh_span rest = {text, length}, line, word;
    while (mh_span_next(&rest, '\n', &line)) {
        if (!mh_span_word(&line, &word) || !mh_span_is(word, "some"))
            continue;
        while (mh_span_word(&line, &word)) {
            uint64_t us;
            if (!begins_with(word, "total="))
                continue;
            word = (mh_span){word.data + 6, word.size - 6};
            if (!mh_span_number(word, &us))
                return 0;
            *out_ns = scaled(us, NS_PER_US);
            return 1;
        }
    }
    return 0;
}

/* --- files --- */

/* The text of ROOT/proc/..., or NULL. */
static MH_PRINTF(3, 4) char *proc_text(size_t *length, const char *root, const char *format, ...)
{
    char path[MH_PARSE_PATH_BYTES], name[256];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    if (snprintf(path, sizeof path, "%s/proc/%s", root, name) >= (int)sizeof path)
        return NULL;
    return mh_file_read_text(path, length);
}

bool mh_usage_stat(mh_process_stat *out, int pid, const char *root)
{
    size_t length;
    char *text = proc_text(&length, root, "%d/stat", pid);
    bool found = text && mh_parse_process_stat(text, length, out);
    mh_free(text);
    return found;
}

/* Its threads, one by one: who waits for a CPU, who is blocked. */
static void read_threads(mh_process_usage *out, int pid, const char *root)
{
    char path[MH_PARSE_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/proc/%d/task", root, pid) >= (int)sizeof path)
        return;
    DIR *tasks = opendir(path);
    if (!tasks)
        return;
    uint64_t cpu = 0, delay = 0;
    bool found = false;
    for (struct dirent *entry; (entry = readdir(tasks));) {
        size_t length;
        int thread = atoi(entry->d_name);
        if (thread <= 0)
            continue;
        char *text = proc_text(&length, root, "%d/task/%d/schedstat", pid, thread);
        found = (text && mh_parse_schedstat(text, length, &cpu, &delay)) || found;
        mh_free(text);
        mh_process_stat stat;
        text = proc_text(&length, root, "%d/task/%d/stat", pid, thread);
        if (text && mh_parse_process_stat(text, length, &stat)) {
            out->running += stat.state == 'R';
            out->blocked += stat.state == 'D';
        }
        mh_free(text);
    }
    (void)closedir(tasks);
    out->delay_ns = found ? delay : MH_NOT_READ;
}

/* A field of a file of fields of the process; MH_NOT_READ where it may not be read. */
static uint64_t field_of(int pid, const char *file, const char *field, const char *root)
{
    size_t length;
    uint64_t value = MH_NOT_READ;
    char *text = proc_text(&length, root, "%d/%s", pid, file);
    if (text)
        (void)mh_parse_field(text, length, field, &value);
    mh_free(text);
    return value;
}

static void read_shares(mh_process_usage *out, int pid, const char *root)
{
    size_t length;
    char *text = proc_text(&length, root, "%d/smaps_rollup", pid);
    if (text) {
        (void)mh_parse_field(text, length, "Pss", &out->pss_bytes);
        (void)mh_parse_field(text, length, "Pss_File", &out->pss_file_bytes);
    }
    mh_free(text);
}

bool mh_usage_locked(int pid, const char *root)
{
    size_t length;
    mh_thread_look look = {.waiting = MH_WAITING_GONE};
    char *text = proc_text(&length, root, "%d/syscall", pid);
    if (text)
        (void)mh_parse_syscall(text, length, &look);
    mh_free(text);
    return mh_look_is_locked(&look, pid, root);
}

mh_status mh_usage_process(mh_process_usage *out, int pid, bool pss, const char *root,
                           mh_error *err)
{
    mh_process_usage usage = {
        .delay_ns = MH_NOT_READ, .pss_bytes = MH_NOT_READ, .pss_file_bytes = MH_NOT_READ};
    if (!mh_usage_stat(&usage.stat, pid, root))
        return mh_fail(err, MH_ERR_NOT_FOUND, "there is no process %d", pid);
    usage.cpu_ns = usage.stat.cpu_ns;
    clockid_t clock;
    struct timespec spent;
    /* The same number in nanoseconds where /proc has ticks of ten milliseconds. */
    if (!*root && clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &spent) == 0)
        usage.cpu_ns = (uint64_t)spent.tv_sec * NS_PER_S + (uint64_t)spent.tv_nsec;
    usage.locked = usage.stat.state == 'S' && mh_usage_locked(pid, root);
    read_threads(&usage, pid, root);
    usage.read_bytes = field_of(pid, "io", "read_bytes", root);
    usage.rss_file_bytes = field_of(pid, "status", "RssFile", root);
    if (pss)
        read_shares(&usage, pid, root);
    *out = usage;
    return MH_OK;
}

/* --- children, as the kernel lists them --- */

typedef struct pid_list {
    int *all;
    size_t count, room;
    bool cut; /* there was no memory for one */
} pid_list;

/* Once each: a number may have gone to another process while the list was made. */
static void pid_list_add(pid_list *to, int pid)
{
    for (size_t at = 0; at < to->count; at++)
        if (to->all[at] == pid)
            return;
    if (to->count == to->room) {
        size_t room = to->room ? 2 * to->room : 16;
        int *grown = mh_realloc(to->all, room, sizeof *grown);
        if (!grown) {
            to->cut = true;
            return;
        }
        to->all = grown;
        to->room = room;
    }
    to->all[to->count++] = pid;
}

/* Adds those that one thread of a process started. False where there is no list. */
static bool add_threads_children(pid_list *to, int pid, int thread, const char *root)
{
    size_t length;
    char *text = proc_text(&length, root, "%d/task/%d/children", pid, thread);
    if (!text)
        return false;
    mh_span rest = {text, length}, word;
    uint64_t child;
    while (mh_span_word(&rest, &word))
        if (mh_span_number(word, &child) && child > 0 && child <= INT32_MAX)
            pid_list_add(to, (int)child);
    mh_free(text);
    return true;
}

static bool add_children(pid_list *to, int pid, const char *root)
{
    char path[MH_PARSE_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/proc/%d/task", root, pid) >= (int)sizeof path)
        return false;
    DIR *tasks = opendir(path);
    if (!tasks)
        return false;
    bool any = false;
    for (struct dirent *entry; (entry = readdir(tasks));) {
        int thread = atoi(entry->d_name);
        any = (thread > 0 && add_threads_children(to, pid, thread, root)) || any;
    }
    (void)closedir(tasks);
    return any;
}

/* False where the kernel has no such lists, or memory did not suffice for them. */
static bool list_below(pid_list *out, int pid, const char *root)
{
    if (!add_children(out, pid, root))
        return false;
    for (size_t next = 0; next < out->count; next++)
        (void)add_children(out, out->all[next], root); /* else it has just ended */
    return !out->cut;
}

/* --- children, from a look at all processes --- */

typedef struct family {
    struct {
        int pid, parent;
    } * all;
    size_t count, room;
} family;

static bool family_add(family *to, int pid, int parent)
{
    if (to->count == to->room) {
        size_t room = to->room ? 2 * to->room : 256;
        void *grown = mh_realloc(to->all, room, sizeof *to->all);
        if (!grown)
            return false;
        to->all = grown;
        to->room = room;
    }
    to->all[to->count].pid = pid;
    to->all[to->count++].parent = parent;
    return true;
}

/* Every process there is, with its parent. */
static mh_status family_read(family *out, const char *root, mh_error *err)
{
    char path[MH_PARSE_PATH_BYTES];
    DIR *proc =
        snprintf(path, sizeof path, "%s/proc", root) < (int)sizeof path ? opendir(path) : NULL;
    if (!proc)
        return mh_fail_sys(err, MH_ERR_IO, errno, "reading %s/proc", root);
    mh_status status = MH_OK;
    for (struct dirent *entry; status == MH_OK && (entry = readdir(proc));) {
        mh_process_stat stat;
        int pid = atoi(entry->d_name);
        if (pid > 0 && mh_usage_stat(&stat, pid, root) && !family_add(out, pid, stat.parent))
            status = mh_fail(err, MH_ERR_NOMEM, "no memory for a list of processes");
    }
    (void)closedir(proc);
    return status;
}

/* Those whose parent is `pid`, then theirs, and so on; how many. `out` has room for all there are.
 */
static size_t family_below(const family *there, int pid, int *out)
{
    size_t count = 0;
    /* Each one found is looked for as a parent in its turn. */
    for (size_t next = 0; next <= count && next <= there->count; next++) {
        int parent = next ? out[next - 1] : pid;
        for (size_t at = 0; at < there->count && count < there->count; at++)
            if (there->all[at].parent == parent && there->all[at].pid != pid)
                out[count++] = there->all[at].pid;
    }
    return count;
}

static mh_status find_below(pid_list *out, int pid, const char *root, mh_error *err)
{
    family there = {0};
    mh_status status = family_read(&there, root, err);
    if (status == MH_OK) {
        out->all = mh_calloc(there.count + 1, sizeof *out->all);
        if (out->all)
            out->count = family_below(&there, pid, out->all);
        else
            status = mh_fail(err, MH_ERR_NOMEM, "no memory for a list of processes");
    }
    mh_free(there.all);
    return status;
}

mh_status mh_usage_children(int **out, size_t *out_count, int pid, const char *root, mh_error *err)
{
    pid_list found = {0};
    if (!list_below(&found, pid, root)) {
        mh_free(found.all);
        found = (pid_list){0};
        MH_TRY(find_below(&found, pid, root, err));
    }
    if (!found.all) /* none: a list all the same, for callers that copy it */
        found.all = mh_calloc(1, sizeof *found.all);
    if (!found.all)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a list of processes");
    *out = found.all;
    *out_count = found.count;
    return MH_OK;
}

/* --- the machine --- */

static uint64_t pressure_of(const char *what, const char *root)
{
    size_t length;
    uint64_t ns = MH_NOT_READ;
    char *text = proc_text(&length, root, "pressure/%s", what);
    if (text)
        (void)mh_parse_pressure(text, length, &ns);
    mh_free(text);
    return ns;
}

void mh_usage_system(mh_system_usage *out, const char *root)
{
    size_t length;
    char *text;
    *out = (mh_system_usage){.busy_ns = MH_NOT_READ,
                             .idle_ns = MH_NOT_READ,
                             .iowait_ns = MH_NOT_READ,
                             .net_read_bytes = MH_NOT_READ,
                             .available_bytes = MH_NOT_READ};
    if ((text = proc_text(&length, root, "stat")))
        (void)mh_parse_cpus(text, length, out);
    mh_free(text);
    if ((text = proc_text(&length, root, "diskstats")))
        (void)mh_parse_disks(text, length, out);
    mh_free(text);
    if ((text = proc_text(&length, root, "net/dev")))
        (void)mh_parse_net(text, length, &out->net_read_bytes);
    mh_free(text);
    if ((text = proc_text(&length, root, "meminfo")))
        (void)mh_parse_field(text, length, "MemAvailable", &out->available_bytes);
    mh_free(text);
    out->psi_cpu_ns = pressure_of("cpu", root);
    out->psi_io_ns = pressure_of("io", root);
    out->psi_memory_ns = pressure_of("memory", root);
}

void mh_busiest_disk_look(mh_busiest_disk *sum, const mh_system_usage *now)
{
    uint64_t read = 0, busy = 0;
    for (uint32_t at = 0; at < now->disk_count; at++) {
        const mh_disk_usage *disk = &now->disks[at], *last = NULL;
        for (uint32_t old = 0; old < sum->last_count && !last; old++)
            if (strcmp(sum->last[old].name, disk->name) == 0)
                last = &sum->last[old];
        /* one that was never seen before may have been busy at any time since boot */
        if (!last || disk->busy_ns < last->busy_ns || disk->read_bytes < last->read_bytes)
            continue;
        if (disk->busy_ns - last->busy_ns >= busy) {
            busy = disk->busy_ns - last->busy_ns;
            read = disk->read_bytes - last->read_bytes;
        }
    }
    sum->busy_ns += busy;
    sum->read_bytes += read;
    memcpy(sum->last, now->disks, now->disk_count * sizeof *now->disks);
    sum->last_count = now->disk_count;
}
