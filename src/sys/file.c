/* file.c - opening files to read, and reading small text files
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/file.h"

#include "base/alloc.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#define FIRST_BYTES 4096
#define MOST_BYTES ((size_t)16 << 20) /* a mountinfo of 100 000 mounts fits */

/* Appends until the end of the file. Kernel files report a size of 0, so only reading tells. */
static bool file_read_all(int fd, char **text, size_t *length)
{
    size_t room = FIRST_BYTES;
    char *grown = mh_realloc(NULL, room, 1);
    while (grown) {
        *text = grown;
        ssize_t got = read(fd, grown + *length, room - 1 - *length);
        if (got == 0)
            return true;
        if (got < 0 && errno != EINTR)
            return false;
        *length += got > 0 ? (size_t)got : 0;
        if (*length < room - 1)
            continue;
        if (room >= MOST_BYTES)
            return false;
        room *= 2;
        grown = mh_realloc(*text, room, 1);
    }
    return false;
}

int mh_file_open(const char *path)
{
    int fd, flags;
    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return -1;
    flags = fcntl(fd, F_GETFL);
    if (flags >= 0)
        (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK); /* who writes may take his time */
    return fd;
}

char *mh_file_read_text(const char *path, size_t *out_length)
{
    int fd = mh_file_open(path);
    if (fd < 0)
        return NULL;
    char *text = NULL;
    size_t length = 0;
    bool whole = file_read_all(fd, &text, &length);
    (void)close(fd);
    if (!whole) {
        mh_free(text);
        return NULL;
    }
    text[length] = '\0';
    *out_length = length;
    return text;
}
