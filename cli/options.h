/* options.h - a verb's options as a table
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_CLI_OPTIONS_H
#define MILLHEAD_CLI_OPTIONS_H

#include "cli.h"

typedef enum mh_cli_kind {
    MH_CLI_FLAG,    /* bool: takes no value */
    MH_CLI_COUNT,   /* int: a whole number, `least` or more */
    MH_CLI_WHOLE,   /* uint64_t: a whole number of any size, `least` or more */
    MH_CLI_SIZE,    /* uint64_t: bytes, `least` or more */
    MH_CLI_SECONDS, /* double */
    MH_CLI_TEXT,    /* const char *: as given */
    MH_CLI_MAYBE,   /* mh_cli_maybe */
} mh_cli_kind;

/* A value that may be left out: it stands after '=', or is the next word where that is a choice. */
typedef struct mh_cli_maybe {
    const char *value;          /* "" where none is given */
    const char *const *choices; /* ended by NULL */
} mh_cli_maybe;

typedef struct mh_cli_option {
    const char *name; /* "--workers", or "-o" */
    mh_cli_kind kind;
    void *place; /* of the kind's type; untouched where the option is not given */
    int least;
} mh_cli_option;

/* Reads the command line of `where` ("plan memory"). Options may stand anywhere; at most `most`
 * other words go into words[], in their order. --help and -h set the flag called "--help" and end
 * the reading. MH_CLI_OK, or MH_CLI_USAGE with the reason said. */
int mh_cli_read(const mh_cli_option *options, size_t count, const char **words, size_t most,
                int argc, char **argv, const char *where);

#endif
