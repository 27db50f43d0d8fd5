/* file.h - opening files to read, and reading small text files
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SYS_FILE_H
#define MH_SYS_FILE_H

#include <stddef.h>

/* A descriptor to read from, or -1 with errno. A pipe with a name that nobody writes to is at its
 * end at once: whoever would open it plainly waited for ever. Any thread. */
int mh_file_open(const char *path);

/* The whole of a file in memory, with a NUL after its *out_length bytes; NULL when it cannot be
 * read, is larger than 16 MiB or there is no memory. Free with mh_free. Any thread. */
char *mh_file_read_text(const char *path, size_t *out_length);

#endif
