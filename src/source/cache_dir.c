/* cache_dir.c - entries of a cache directory: read, checked, written
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/cache_dir.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/parts.h"
#include "base/sha256.h"
#include "source/cache_files.h"
#include "source/redact.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define ENTRY_PATH (2 + 1 + MH_CACHE_KEY + 8) /* "ab/KEY.part" */
#define COUNT_AGAIN_S 3600u
#define LOOK_AGAIN_S 60 /* for entries that nobody reads, where there was none */
#define EVICT_SHARE 16u /* of the limit is freed at a time: other threads write meanwhile */

struct mh_cache_dir {
    /* set at open, then read-only */
    mh_cache_root root;
    int space, in_use; /* the space's directory; its name file, locked while we use it */
    uint64_t limit;
    char path[PATH_MAX];
    _Atomic bool off; /* a write failed: nothing more is kept */
    _Atomic bool said_small;
    time_t none_idle;         /* there was none then; under `evicting` */
    pthread_mutex_t evicting; /* one thread at a time; the others wait for the room it makes */
    struct {
        _Atomic uint64_t hits, misses, hit_bytes, written, written_bytes, evicted_bytes, corrupt;
    } stats;
};

/* --- keys and headers --- */

void mh_cache_key_make(mh_cache_key *out, const char *name, bool whole, uint64_t offset,
                       uint64_t size, uint64_t version)
{
    mh_sha256 hash;
    uint8_t bytes[MH_SHA256_BYTES];
    char hex[MH_SHA256_HEX];
    const uint64_t range[3] = {whole, whole ? 0 : offset, whole ? 0 : size};
    mh_sha256_init(&hash);
    mh_sha256_add(&hash, range, sizeof range);
    mh_sha256_add(&hash, name, strlen(name));
    mh_sha256_end(&hash, bytes);
    mh_sha256_hex(bytes, hex);
    memcpy(out->text, hex, MH_CACHE_KEY - 1);
    out->text[MH_CACHE_KEY - 1] = '\0';
    out->version = version;
}

uint64_t mh_cache_header_hash(const mh_cache_header *header)
{
    return mh_hash64(header, offsetof(mh_cache_header, own_hash), MH_CACHE_MAGIC);
}

static void entry_path(char out[ENTRY_PATH], const mh_cache_key *key, const char *suffix)
{
    (void)snprintf(out, ENTRY_PATH, "%.2s/%s%s", key->text, key->text, suffix);
}

/* --- opening --- */

static const mh_amount_unit sizes[] = {{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3},
                                       {"KB", 1e3},  {"B", 1},    {NULL, 0}};

static mh_status read_text(mh_cache_dir *self, const char *text, mh_error *err)
{
    double bytes = 0;
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    if (length == 0 || length >= sizeof self->path)
        return mh_fail(err, MH_ERR_INVALID, "a cache is written DIR:50GB, not '%.100s'", text);
    if (colon && (!mh_amount_read(colon + 1, sizes, 1e18, &bytes) || bytes < 1))
        return mh_fail(err, MH_ERR_INVALID,
                       "'%.50s' is not the size of a cache: write DIR:50GB (TB, GB, MB, kB, B)",
                       colon + 1);
    memcpy(self->path, text, length);
    self->limit = (uint64_t)bytes;
    return MH_OK;
}

/* Half of what is free, and all that is in it. */
static void default_limit(mh_cache_dir *self)
{
    struct statvfs about;
    if (self->limit || fstatvfs(self->root.fd, &about) != 0)
        return;
    self->limit = (uint64_t)about.f_bavail * about.f_frsize / 2 + self->root.ledger->bytes;
}

static mh_status open_space(mh_cache_dir *self, const char *name, mh_error *err)
{
    char space[MH_CACHE_SPACE], shown[512];
    mh_cache_key key;
    mh_cache_key_make(&key, name, true, 0, 0, 0);
    (void)snprintf(space, sizeof space, "%.16s", key.text);
    if (mkdirat(self->root.fd, space, 0700) != 0 && errno != EEXIST)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write into the cache %.200s", self->path);
    self->space = openat(self->root.fd, space, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat about;
    if (self->space < 0 || fstat(self->space, &about) != 0 || about.st_uid != geteuid() ||
        about.st_mode & 022)
        return mh_fail(err, MH_ERR_INVALID, "the cache %.200s has parts that are not yours",
                       self->path);
    self->in_use = openat(self->space, "name", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (self->in_use < 0)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write into the cache %.200s", self->path);
    mh_redact_url(shown, sizeof shown, name);
    (void)mh_cache_lock(self->in_use, F_RDLCK);
    (void)!pwrite(self->in_use, shown, strlen(shown), 0); /* for people: without it all works */
    (void)futimens(self->in_use, NULL);
    return MH_OK;
}

mh_status mh_cache_dir_open(mh_cache_dir **out, const char *text, const char *space, mh_error *err)
{
    mh_cache_dir *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a cache");
    self->space = self->in_use = self->root.fd = self->root.ledger_fd = -1;
    pthread_mutex_init(&self->evicting, NULL);
    mh_status status = read_text(self, text, err);
    if (status == MH_OK)
        status = mh_cache_root_open(&self->root, self->path, true, err);
    if (status == MH_OK) {
        default_limit(self);
        status = open_space(self, space, err);
    }
    if (status != MH_OK) {
        mh_cache_dir_close(self);
        return status;
    }
    if ((uint64_t)time(NULL) - self->root.ledger->counted_s > COUNT_AGAIN_S)
        mh_cache_recount(&self->root);
    *out = self;
    return MH_OK;
}

void mh_cache_dir_close(mh_cache_dir *self)
{
    if (!self)
        return;
    if (self->in_use >= 0)
        close(self->in_use);
    if (self->space >= 0)
        close(self->space);
    mh_cache_root_close(&self->root);
    pthread_mutex_destroy(&self->evicting);
    mh_free(self);
}

/* --- reading --- */

static void remove_entry(mh_cache_dir *self, const char *path, uint64_t bytes)
{
    if (unlinkat(self->space, path, 0) == 0)
        self->root.ledger->bytes -= bytes;
}

static bool is_sound(const mh_cache_header *header, const mh_cache_key *key, const uint8_t *bytes,
                     uint64_t size)
{
    return header->magic == MH_CACHE_MAGIC && header->size == size &&
           header->own_hash == mh_cache_header_hash(header) &&
           strncmp(header->key, key->text, sizeof header->key) == 0 &&
           header->hash == mh_hash64(bytes, size, header->version);
}

mh_cache_found mh_cache_dir_read(mh_cache_dir *self, const mh_cache_key *key, uint8_t *into,
                                 uint64_t room, bool wait, uint64_t *got)
{
    char path[ENTRY_PATH];
    struct stat about;
    mh_cache_header header;
    entry_path(path, key, "");
    int fd = openat(self->space, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0) {
        if (fd >= 0)
            close(fd);
        else if (errno == ELOOP) /* a link that somebody put there */
            (void)unlinkat(self->space, path, 0);
        return MH_CACHE_MISS;
    }
    uint64_t size = (uint64_t)about.st_size;
    bool fits = size >= sizeof header && size - sizeof header <= room;
    uint64_t wanted = fits ? size : sizeof header;
    const struct iovec parts[2] = {{&header, sizeof header}, {into, wanted - sizeof header}};
    ssize_t came = preadv2(fd, parts, 2, 0, wait ? 0 : RWF_NOWAIT);
    while (wait && came > 0 && (uint64_t)came < wanted && came >= (ssize_t)sizeof header) {
        ssize_t more =
            pread(fd, into + ((uint64_t)came - sizeof header), wanted - (uint64_t)came, came);
        if (more <= 0)
            break;
        came += more;
    }
    if (came == (ssize_t)wanted)
        mh_cache_touch(fd, &about.st_mtim);
    close(fd);
    if (!wait && came != (ssize_t)wanted)
        return MH_CACHE_LATER;
    uint64_t bytes = wanted - sizeof header;
    if (fits && came == (ssize_t)wanted && about.st_uid == geteuid() &&
        is_sound(&header, key, into, bytes) && header.version == key->version) {
        self->stats.hits++;
        self->stats.hit_bytes += bytes;
        *got = bytes;
        return MH_CACHE_HIT;
    }
    bool old = fits && came == (ssize_t)wanted && header.version != key->version &&
               is_sound(&header, key, into, bytes);
    self->stats.corrupt += !old;
    remove_entry(self, path, size);
    return MH_CACHE_MISS;
}

bool mh_cache_dir_has(const mh_cache_dir *self, const mh_cache_key *key)
{
    char path[ENTRY_PATH];
    entry_path(path, key, "");
    return faccessat(self->space, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* --- writing --- */

static void give_up(mh_cache_dir *self, int failure)
{
    if (!atomic_exchange(&self->off, true))
        (void)fprintf(stderr,
                      "millhead: the cache %s takes nothing more (%s): reading goes on "
                      "without it\n",
                      self->path, strerror(failure));
}

/* Whether the part is still the file of that name: its writer may just have renamed it. */
static bool is_current(const mh_cache_dir *self, int part, const char *path)
{
    struct stat ours, named;
    return fstat(part, &ours) == 0 &&
           fstatat(self->space, path, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           ours.st_ino == named.st_ino;
}

int mh_cache_dir_begin(mh_cache_dir *self, const mh_cache_key *key)
{
    char path[ENTRY_PATH];
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    self->stats.misses++;
    if (self->off)
        return -2;
    entry_path(path, key, ".part");
    int part = openat(self->space, path, flags, 0600);
    if (part < 0 && errno == ENOENT) {
        const char directory[3] = {key->text[0], key->text[1], '\0'};
        (void)mkdirat(self->space, directory, 0700);
        part = openat(self->space, path, flags, 0600);
    }
    if (part < 0) {
        if (errno == ENOSPC || errno == EDQUOT || errno == EROFS || errno == EACCES)
            give_up(self, errno);
        return -2;
    }
    if (mh_cache_lock(part, F_WRLCK) && is_current(self, part, path)) {
        if (!mh_cache_dir_has(self, key))
            return part;
        (void)unlinkat(self->space, path, 0); /* somebody was faster: it is there now */
    }
    self->stats.misses--; /* it is asked for again */
    close(part);
    return -1;
}

/* Locked by `evicting`. */
static uint64_t evict_idle(mh_cache_dir *self, uint64_t need)
{
    if (time(NULL) - self->none_idle < LOOK_AGAIN_S)
        return 0;
    const uint64_t freed = mh_cache_evict_idle(&self->root, self->space, need);
    if (!freed)
        self->none_idle = time(NULL);
    return freed;
}

/* Until the ledger, which counts what is to be written already, is within the limit. False: nothing
 * is left to remove, or another process is at it. */
static bool make_room(mh_cache_dir *self)
{
    const mh_cache_ledger *ledger = self->root.ledger;
    if (ledger->bytes <= self->limit)
        return true;
    pthread_mutex_lock(&self->evicting);
    uint64_t freed = 1, total = ledger->bytes;
    while (total > self->limit && freed) {
        const uint64_t need = total - self->limit + self->limit / EVICT_SHARE;
        freed = mh_cache_evict(&self->root, need);
        if (!freed)
            freed = evict_idle(self, need);
        self->stats.evicted_bytes += freed;
        total = ledger->bytes;
    }
    pthread_mutex_unlock(&self->evicting);
    return total <= self->limit;
}

static bool reserve(mh_cache_dir *self, uint64_t bytes)
{
    mh_cache_ledger *ledger = self->root.ledger;
    if (bytes > self->limit) {
        if (!atomic_exchange(&self->said_small, true))
            (void)fprintf(stderr,
                          "millhead: the cache %s:%lluB is too small for one piece of %llu bytes: "
                          "give it more\n",
                          self->path, (unsigned long long)self->limit, (unsigned long long)bytes);
        return false;
    }
    atomic_fetch_add(&ledger->bytes, bytes);
    if (make_room(self))
        return true;
    ledger->bytes -= bytes;
    return false;
}

static bool write_all(int fd, const mh_cache_header *header, const uint8_t *bytes, uint64_t size)
{
    const struct iovec parts[2] = {{(void *)(uintptr_t)header, sizeof *header},
                                   {(void *)(uintptr_t)bytes, size}};
    uint64_t wanted = sizeof *header + size;
    ssize_t wrote = pwritev(fd, parts, 2, 0);
    while (wrote >= (ssize_t)sizeof *header && (uint64_t)wrote < wanted) {
        ssize_t more =
            pwrite(fd, bytes + ((uint64_t)wrote - sizeof *header), wanted - (uint64_t)wrote, wrote);
        if (more <= 0)
            return false;
        wrote += more;
    }
    return (uint64_t)wrote == wanted;
}

/* errno says why it failed. */
static bool write_entry(mh_cache_dir *self, const mh_cache_key *key, int part, const char *path,
                        const uint8_t *bytes, uint64_t size)
{
    char name[ENTRY_PATH];
    mh_cache_header header = {.magic = MH_CACHE_MAGIC, .version = key->version, .size = size};
    memcpy(header.key, key->text, sizeof key->text);
    header.hash = mh_hash64(bytes, size, header.version);
    header.own_hash = mh_cache_header_hash(&header);
    entry_path(name, key, "");
    errno = 0;
    return ftruncate(part, 0) == 0 && write_all(part, &header, bytes, size) &&
           renameat(self->space, path, self->space, name) == 0;
}

void mh_cache_dir_end(mh_cache_dir *self, const mh_cache_key *key, int part, const uint8_t *bytes,
                      uint64_t size)
{
    char path[ENTRY_PATH];
    uint64_t entry = sizeof(mh_cache_header) + size;
    entry_path(path, key, ".part");
    bool reserved = bytes && reserve(self, entry);
    if (reserved && write_entry(self, key, part, path, bytes, size)) {
        self->stats.written++;
        self->stats.written_bytes += size;
    } else {
        int failure = errno;
        (void)unlinkat(self->space, path, 0);
        if (reserved) {
            self->root.ledger->bytes -= entry;
            give_up(self, failure ? failure : EIO);
        }
    }
    close(part);
}

void mh_cache_dir_stats(mh_cache_dir *self, mh_cache_stats *out)
{
    *out = (mh_cache_stats){.hits = self->stats.hits,
                            .misses = self->stats.misses,
                            .hit_bytes = self->stats.hit_bytes,
                            .written = self->stats.written,
                            .written_bytes = self->stats.written_bytes,
                            .evicted_bytes = self->stats.evicted_bytes,
                            .corrupt = self->stats.corrupt};
}
