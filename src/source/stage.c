/* stage.c - a data set copied to local disk: in parts, in parallel, once per machine
 * SPDX-License-Identifier: Apache-2.0
 *
 * DIR/.millhead-stage has a line for every file that is whole: a number for its name, size and
 * version. Whoever holds that file's lock copies; the others wait for it.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/struct_size.h"
#include "source/stage_list.h"

#include <millhead/storage.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PART_BYTES (UINT64_C(4) << 20)
#define IN_FLIGHT 16u
#define IN_FLIGHT_MOST 256u
#define RECORD ".millhead-stage"
#define SUFFIX ".millhead-part"

/* A file that is being copied. */
typedef struct target {
    uint64_t left; /* parts that are not written */
    int fd;
} target;

/* One part under way. */
typedef struct slot {
    struct stage *stage;
    uint32_t file;
    uint64_t offset, size;
    uint8_t *bytes;
    bool over;
    mh_status status;
    mh_error err;
    struct slot *next;
} slot;

typedef struct stage {
    mh_stage_options options;
    const mh_source_type *type;
    mh_source *source;
    mh_stage_list list;
    target *targets;
    int to, record; /* directory; the record, locked */
    const char *to_path;
    uint64_t *known; /* numbers of the record, sorted */
    size_t known_count;
    bool *skip;
    slot *slots;
    uint8_t *memory;
    mh_stage_report report;
    uint64_t written;
    struct {
        pthread_mutex_t lock;
        pthread_cond_t came;
        slot *over;
    } sync;
} stage;

void mh_stage_options_init_sized(mh_stage_options *options, size_t size)
{
    const mh_stage_options defaults = {.struct_size = size};
    mh_sized_write(options, size, &defaults, sizeof defaults);
}

void mh_stage_report_init_sized(mh_stage_report *report, size_t size)
{
    const mh_stage_report defaults = {.struct_size = size};
    mh_sized_write(report, size, &defaults, sizeof defaults);
}

/* --- what is there already --- */

static uint64_t number_of(const stage *self, uint32_t file)
{
    const mh_object *object = &self->list.objects[file];
    const uint64_t about[2] = {object->size, object->version};
    const char *path = self->list.paths[file];
    return mh_hash64(path, strlen(path), mh_hash64(about, sizeof about, 1));
}

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* Makes the directory, waits for the lock and reads the record. */
static mh_status open_record(stage *self, mh_error *err)
{
    char line[64];
    size_t room = 0;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (mkdir(self->to_path, 0777) != 0 && errno != EEXIST)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot make %.200s", self->to_path);
    self->to = open(self->to_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (self->to >= 0)
        self->record = openat(self->to, RECORD, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (self->record < 0)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write into %.200s", self->to_path);
    while (fcntl(self->record, F_OFD_SETLKW, &lock) != 0)
        if (errno != EINTR)
            return mh_fail_sys(err, MH_ERR_IO, errno, "cannot lock %.200s", self->to_path);
    int copy = openat(self->to, RECORD, O_RDONLY | O_CLOEXEC);
    FILE *file = copy >= 0 ? fdopen(copy, "r") : NULL;
    if (!file && copy >= 0)
        close(copy);
    while (file && fgets(line, sizeof line, file)) {
        if (self->known_count == room) {
            room = room ? room * 2 : 256;
            uint64_t *longer = mh_realloc(self->known, room, sizeof *longer);
            if (!longer)
                break; /* what is not known is copied again */
            self->known = longer;
        }
        self->known[self->known_count++] = strtoull(line, NULL, 16);
    }
    if (file)
        (void)fclose(file);
    if (self->known)
        qsort(self->known, self->known_count, sizeof *self->known, by_value);
    return MH_OK;
}

static bool is_there(const stage *self, uint32_t file)
{
    struct stat about;
    uint64_t number = number_of(self, file);
    return self->known &&
           bsearch(&number, self->known, self->known_count, sizeof number, by_value) &&
           fstatat(self->to, self->list.paths[file], &about, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(about.st_mode) && (uint64_t)about.st_size == self->list.objects[file].size;
}

static mh_status check_space(stage *self, mh_error *err)
{
    struct statvfs about;
    uint64_t need = 0;
    for (uint32_t i = 0; i < self->list.count; i++) {
        self->skip[i] = is_there(self, i);
        self->report.files++;
        self->report.bytes += self->list.objects[i].size;
        self->report.skipped += self->skip[i];
        need += self->skip[i] ? 0 : self->list.objects[i].size;
    }
    self->report.copied_bytes = need;
    if (fstatvfs(self->to, &about) == 0 && (uint64_t)about.f_bavail * about.f_frsize < need)
        return mh_fail_sys(err, MH_ERR_IO, ENOSPC, "%.200s has %.1f MB free and needs %.1f MB",
                           self->to_path, (double)about.f_bavail * (double)about.f_frsize / 1e6,
                           (double)need / 1e6);
    return MH_OK;
}

/* --- files --- */

static void make_parents(const stage *self, const char *path)
{
    char parent[PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        (void)snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
        (void)mkdirat(self->to, parent, 0777);
    }
}

static void part_path(char out[PATH_MAX], const char *path)
{
    (void)snprintf(out, PATH_MAX, "%.*s" SUFFIX, (int)(PATH_MAX - sizeof SUFFIX), path);
}

static mh_status open_target(stage *self, uint32_t file, mh_error *err)
{
    char part[PATH_MAX];
    const char *path = self->list.paths[file];
    target *made = &self->targets[file];
    make_parents(self, path);
    part_path(part, path);
    made->fd = openat(self->to, part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (made->fd < 0)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write %.200s/%.200s", self->to_path,
                           path);
    uint64_t size = self->list.objects[file].size;
    made->left = (size + PART_BYTES - 1) / PART_BYTES;
    return MH_OK;
}

/* All parts are there: the file gets its name, and a line in the record. */
static mh_status finish_target(stage *self, uint32_t file, mh_error *err)
{
    char part[PATH_MAX], line[32];
    const char *path = self->list.paths[file];
    target *made = &self->targets[file];
    part_path(part, path);
    bool good = fdatasync(made->fd) == 0;
    good = close(made->fd) == 0 && good;
    made->fd = -1;
    int length =
        snprintf(line, sizeof line, "%016llx\n", (unsigned long long)number_of(self, file));
    if (!good || renameat(self->to, part, self->to, path) != 0 ||
        write(self->record, line, (size_t)length) != length)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write %.200s/%.200s", self->to_path,
                           path);
    self->report.copied++;
    return MH_OK;
}

static mh_status write_part(stage *self, const slot *part, mh_error *err)
{
    uint64_t done = 0;
    target *made = &self->targets[part->file];
    while (done < part->size) {
        ssize_t wrote =
            pwrite(made->fd, part->bytes + done, part->size - done, (off_t)(part->offset + done));
        if (wrote < 0 && errno != EINTR)
            return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write %.200s/%.200s", self->to_path,
                               self->list.paths[part->file]);
        done += wrote > 0 ? (uint64_t)wrote : 0;
    }
    self->written += part->size;
    return --made->left ? MH_OK : finish_target(self, part->file, err);
}

/* --- copying --- */

static void part_came(void *context, void *tag, uint64_t got, const mh_error *err)
{
    stage *self = context;
    slot *part = tag;
    pthread_mutex_lock(&self->sync.lock);
    part->status = err ? err->code : MH_OK;
    if (err)
        part->err = *err;
    else if (got != part->size)
        part->status = mh_fail(&part->err, MH_ERR_IO, "%.200s is shorter than it was",
                               self->list.paths[part->file]);
    part->next = self->sync.over;
    self->sync.over = part;
    pthread_cond_signal(&self->sync.came);
    pthread_mutex_unlock(&self->sync.lock);
}

static slot *wait_for_part(stage *self)
{
    pthread_mutex_lock(&self->sync.lock);
    while (!self->sync.over)
        pthread_cond_wait(&self->sync.came, &self->sync.lock);
    slot *part = self->sync.over;
    self->sync.over = part->next;
    pthread_mutex_unlock(&self->sync.lock);
    return part;
}

/* Where copying is: the next part to ask for. */
typedef struct cursor {
    uint32_t file;
    uint64_t offset;
    bool open;
} cursor;

/* Moves on to a file with bytes to copy; those without are made on the way. */
static mh_status next_file(stage *self, cursor *at, mh_error *err)
{
    while (at->file < self->list.count && !at->open) {
        if (self->skip[at->file]) {
            at->file++;
            continue;
        }
        MH_TRY(open_target(self, at->file, err));
        at->offset = 0;
        at->open = self->targets[at->file].left > 0;
        if (!at->open)
            MH_TRY(finish_target(self, at->file++, err));
    }
    return MH_OK;
}

static mh_status ask_part(stage *self, cursor *at, slot *part, mh_error *err)
{
    uint64_t size = self->list.objects[at->file].size;
    part->stage = self;
    part->file = at->file;
    part->offset = at->offset;
    part->size = size - at->offset < PART_BYTES ? size - at->offset : PART_BYTES;
    at->offset += part->size;
    if (at->offset == size) {
        at->open = false;
        at->file++;
    }
    const mh_read read = {.object = part->file,
                          .offset = part->offset,
                          .size = part->size,
                          .into = part->bytes,
                          .tag = part};
    return mh_source_submit(self->source, &read, 1, part_came, self, err);
}

static mh_status copy_all(stage *self, mh_error *err)
{
    cursor at = {0};
    uint32_t under_way = 0;
    mh_status status = MH_OK;
    slot *spare = NULL;
    for (uint32_t i = 0; i < self->options.in_flight; i++) {
        self->slots[i].bytes = self->memory + i * PART_BYTES;
        self->slots[i].next = spare;
        spare = &self->slots[i];
    }
    do {
        while (status == MH_OK && spare) {
            status = next_file(self, &at, err);
            if (status != MH_OK || at.file == self->list.count)
                break;
            slot *part = spare;
            spare = part->next;
            status = ask_part(self, &at, part, err);
            under_way += status == MH_OK;
        }
        if (!under_way)
            break;
        slot *part = wait_for_part(self);
        under_way--;
        if (status == MH_OK && part->status != MH_OK) {
            status = part->status;
            if (err)
                *err = part->err;
        }
        if (status == MH_OK)
            status = write_part(self, part, err);
        if (status == MH_OK && self->options.progress &&
            self->options.progress(self->options.progress_arg,
                                   (double)self->written / (double)self->report.copied_bytes))
            status = mh_fail(err, MH_ERR_CLOSED, "stopped");
        part->next = spare;
        spare = part;
    } while (under_way || (status == MH_OK && at.file < self->list.count));
    return status;
}

/* --- the whole --- */

static mh_status open_parts(stage *self, const char *from, mh_error *err)
{
    MH_TRY(mh_source_of(&self->type, from, err));
    const mh_source_options options = {.in_flight = self->options.in_flight,
                                       .storage = self->options.storage};
    mh_status status = mh_stage_list_read(&self->list, from, self->type, &options, err);
    mh_source_rest();
    MH_TRY(status);
    MH_TRY(open_record(self, err));
    self->targets = mh_calloc(self->list.count, sizeof *self->targets);
    self->skip = mh_calloc(self->list.count, sizeof *self->skip);
    self->slots = mh_calloc(self->options.in_flight, sizeof *self->slots);
    self->memory = mh_calloc(self->options.in_flight, PART_BYTES);
    if (!self->targets || !self->skip || !self->slots || !self->memory)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to copy %u files", self->list.count);
    for (uint32_t i = 0; i < self->list.count; i++)
        self->targets[i].fd = -1;
    MH_TRY(check_space(self, err));
    const mh_objects objects = {.list = self->list.objects, .count = self->list.count};
    self->list.as_objects = objects;
    return mh_source_open(&self->source, self->type, &self->list.as_objects, &options, err);
}

static void close_parts(stage *self)
{
    mh_source_close(self->source);
    for (uint32_t i = 0; self->targets && i < self->list.count; i++)
        if (self->targets[i].fd >= 0)
            close(self->targets[i].fd);
    if (self->record >= 0)
        close(self->record);
    if (self->to >= 0)
        close(self->to);
    mh_stage_list_free(&self->list);
    mh_free(self->targets);
    mh_free(self->skip);
    mh_free(self->slots);
    mh_free(self->memory);
    mh_free(self->known);
    pthread_cond_destroy(&self->sync.came);
    pthread_mutex_destroy(&self->sync.lock);
    mh_free(self);
}

mh_status mh_stage(const char *from, const char *to, const mh_stage_options *given,
                   mh_stage_report *out, mh_error *err)
{
    size_t size = out->struct_size;
    stage *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to copy");
    self->to = self->record = -1;
    self->to_path = to;
    pthread_mutex_init(&self->sync.lock, NULL);
    pthread_cond_init(&self->sync.came, NULL);
    mh_stage_options_init(&self->options);
    mh_status status = MH_OK;
    if (given)
        status = MH_SIZED_TAKE(&self->options, given, mh_stage_options, progress_arg, err);
    if (!self->options.in_flight)
        self->options.in_flight = IN_FLIGHT;
    if (self->options.in_flight > IN_FLIGHT_MOST)
        self->options.in_flight = IN_FLIGHT_MOST;
    if (status == MH_OK)
        status = open_parts(self, from, err);
    if (status == MH_OK)
        status = copy_all(self, err);
    self->report.copied_bytes = self->written;
    self->report.struct_size = size;
    if (status == MH_OK)
        mh_sized_write(out, size, &self->report, sizeof self->report);
    close_parts(self);
    return status;
}
