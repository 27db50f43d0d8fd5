/* parse.c - the kernel's text files as pure functions over bytes
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/parse.h"

#include "sys/cgroup.h"
#include "sys/span.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Whether a list such as "rw,cpu,cpuacct" has `item`. */
static bool span_lists(mh_span list, const char *item)
{
    mh_span piece;
    while (mh_span_next(&list, ',', &piece))
        if (mh_span_is(piece, item))
            return true;
    return false;
}

int mh_parse_limit(const char *text, size_t length, uint64_t *out)
{
    mh_span rest = {text, length}, word;
    if (!mh_span_word(&rest, &word))
        return 0;
    if (mh_span_is(word, "max")) {
        *out = MH_NO_LIMIT;
        return 1;
    }
    return mh_span_number(word, out);
}

int mh_parse_cpu_max(const char *text, size_t length, double *out_cpus)
{
    mh_span rest = {text, length}, quota_word, period_word;
    uint64_t quota, period;
    if (!mh_span_word(&rest, &quota_word))
        return 0;
    if (mh_span_is(quota_word, "max")) {
        *out_cpus = 0;
        return 1;
    }
    if (!mh_span_number(quota_word, &quota) || !mh_span_word(&rest, &period_word) ||
        !mh_span_number(period_word, &period) || quota == 0 || period == 0)
        return 0;
    *out_cpus = (double)quota / (double)period;
    return 1;
}

int mh_parse_field(const char *text, size_t length, const char *name, uint64_t *out)
{
    mh_span rest = {text, length}, line;
    while (mh_span_next(&rest, '\n', &line)) {
        mh_span word, unit;
        uint64_t value;
        if (!mh_span_word(&line, &word))
            continue;
        if (word.data[word.size - 1] == ':')
            word.size--;
        if (!mh_span_is(word, name))
            continue;
        if (!mh_span_word(&line, &word) || !mh_span_number(word, &value))
            return 0;
        if (mh_span_word(&line, &unit) && mh_span_is(unit, "kB") &&
            __builtin_mul_overflow(value, UINT64_C(1024), &value))
            value = MH_NO_LIMIT;
        *out = value;
        return 1;
    }
    return 0;
}

int mh_parse_own_group(const char *text, size_t length, const char *controller, char *out)
{
    mh_span rest = {text, length}, line;
    while (mh_span_next(&rest, '\n', &line)) {
        mh_span number, controllers;
        /* "4:memory:/a/b"; the path is all that follows and may hold colons itself. A named v1
         * hierarchy ("1:name=systemd:/") matches no controller. */
        if (!mh_span_next(&line, ':', &number) || !mh_span_next(&line, ':', &controllers))
            continue;
        bool wanted = *controller ? span_lists(controllers, controller)
                                  : mh_span_is(number, "0") && controllers.size == 0;
        if (!wanted || line.size == 0 || line.size >= MH_PARSE_PATH_BYTES || *line.data != '/' ||
            memchr(line.data, '\0', line.size))
            continue;
        memcpy(out, line.data, line.size);
        out[line.size] = '\0';
        return 1;
    }
    return 0;
}

static bool is_octal(char byte)
{
    return byte >= '0' && byte <= '7';
}

/* Undoes the kernel's "\040" for blanks in paths. */
static bool path_decode(mh_span from, char *out)
{
    size_t used = 0;
    for (size_t at = 0; at < from.size; at++) {
        char byte = from.data[at];
        if (byte == '\\' && from.size - at > 3 && is_octal(from.data[at + 1]) &&
            is_octal(from.data[at + 2]) && is_octal(from.data[at + 3])) {
            byte = (char)((from.data[at + 1] - '0') * 64 + (from.data[at + 2] - '0') * 8 +
                          (from.data[at + 3] - '0'));
            at += 3;
        }
        if (byte == '\0' || used + 1 >= MH_PARSE_PATH_BYTES)
            return false;
        out[used++] = byte;
    }
    out[used] = '\0';
    return used > 0 && out[0] == '/';
}

/* What a line of mountinfo tells. */
typedef struct mount_line {
    mh_span root, point, type, super;
} mount_line;

/* "ID PARENT MAJ:MIN ROOT POINT OPTIONS [TAGS...] - TYPE SOURCE SUPER". */
static bool mount_read(mh_span line, mount_line *out)
{
    mh_span word;
    for (int skipped = 0; skipped < 3; skipped++)
        if (!mh_span_word(&line, &word))
            return false;
    if (!mh_span_word(&line, &out->root) || !mh_span_word(&line, &out->point))
        return false;
    do
        if (!mh_span_word(&line, &word))
            return false;
    while (!mh_span_is(word, "-"));
    return mh_span_word(&line, &out->type) && mh_span_word(&line, &word) &&
           mh_span_word(&line, &out->super);
}

/* Whether it is a mount of the hierarchy asked for. */
static bool mount_is_of(const mount_line *mount, const char *controller)
{
    if (!*controller)
        return mh_span_is(mount->type, "cgroup2");
    return mh_span_is(mount->type, "cgroup") && span_lists(mount->super, controller);
}

/* Whether `path` has a ".." component: a group outside the process's namespace. */
static bool path_climbs(const char *path)
{
    for (const char *at = strstr(path, "/.."); at; at = strstr(at + 1, "/.."))
        if (at[3] == '/' || at[3] == '\0')
            return true;
    return false;
}

/* The part of `group` below `root`, both absolute; NULL when it does not lie below. */
static const char *path_below(const char *group, const char *root)
{
    size_t size = strlen(root);
    if (path_climbs(group) || path_climbs(root))
        return NULL;
    if (size == 1)
        return group[1] ? group : "";
    if (strncmp(group, root, size) != 0 || (group[size] != '/' && group[size] != '\0'))
        return NULL;
    return group + size;
}

int mh_parse_group_mount(const char *text, size_t length, const char *controller, const char *group,
                         mh_cgroup_mount *out)
{
    mh_span rest = {text, length}, line;
    mount_line mount;
    char root[MH_PARSE_PATH_BYTES], point[MH_PARSE_PATH_BYTES];
    bool found = false, contained = false;
    size_t best = 0;
    while (mh_span_next(&rest, '\n', &line)) {
        if (!mount_read(line, &mount) || !mount_is_of(&mount, controller) ||
            !path_decode(mount.root, root) || !path_decode(mount.point, point))
            continue;
        const char *below = path_below(group, root);
        /* A mount that contains the group beats one that does not; among those the one with the
         * longest way down shows the most parents. */
        bool better = below ? !contained || strlen(below) > best : !found;
        if (!better)
            continue;
        found = true;
        contained = below != NULL;
        best = below ? strlen(below) : 0;
        memcpy(out->point, point, strlen(point) + 1);
        memcpy(out->group, below ? below : "", best + 1);
    }
    return found;
}

/* Types whose files come over a network, or from outside a virtual machine. */
static bool is_network_type(mh_span type)
{
    static const char *const types[] = {
        "nfs", "nfs4",   "cifs", "smb3",     "smbfs", "lustre",    "gpfs",     "ceph",
        "9p",  "beegfs", "afs",  "virtiofs", "ocfs2", "glusterfs", "orangefs", "panfs"};
    for (size_t at = 0; at < sizeof types / sizeof *types; at++)
        if (mh_span_is(type, types[at]))
            return true;
    /* fuse.sshfs, fuse.s3fs, ...: what else a program serves is seldom fast either */
    return type.size > 5 && memcmp(type.data, "fuse.", 5) == 0;
}

/* "TYPE at POINT" after what is there, and a comma between. */
static void append_mount(char *out, size_t room, size_t *used, mh_span type, const char *point)
{
    if (*used >= room)
        return;
    int wanted = snprintf(out + *used, room - *used, "%s%.*s at %s", *used ? ", " : "",
                          (int)type.size, type.data, point);
    *used += wanted > 0 ? (size_t)wanted : 0;
}

int mh_parse_network_mounts(const char *text, size_t length, const char *directory, char *out,
                            size_t room)
{
    mh_span rest = {text, length}, line, holder = {0};
    char point[MH_PARSE_PATH_BYTES], holder_point[MH_PARSE_PATH_BYTES] = "";
    mount_line mount;
    size_t used = 0;
    int count = 0;
    if (room > 0)
        *out = '\0';
    while (mh_span_next(&rest, '\n', &line)) {
        if (!mount_read(line, &mount) || !path_decode(mount.point, point))
            continue;
        /* the longest one holds the directory; of two on one place the later hides the earlier */
        if (path_below(directory, point) && strlen(point) >= strlen(holder_point)) {
            holder = mount.type;
            memcpy(holder_point, point, strlen(point) + 1);
        } else if (path_below(point, directory) && is_network_type(mount.type)) {
            append_mount(out, room, &used, mount.type, point);
            count++;
        }
    }
    if (holder.size > 0 && is_network_type(holder)) {
        append_mount(out, room, &used, holder, holder_point);
        count++;
    }
    return count;
}
