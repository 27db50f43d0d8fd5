/* cli.h - what the verbs of the command share
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_CLI_H
#define MILLHEAD_CLI_H

#include <millhead/millhead.h>
#include <stdbool.h>

/* Exit codes. */
enum {
    MH_CLI_OK = 0,
    MH_CLI_FAILED = 1, /* the data or the run */
    MH_CLI_USAGE = 2,  /* the command line or the configuration */
    MH_CLI_INTERRUPTED = 130,
};

/* Writes one line "millhead: WHAT (WHERE): TO DO" to standard error, control characters replaced,
 * and returns `code`. WHAT is the format. */
int mh_cli_fail(int code, const char *where, const char *todo, const char *format, ...)
    MH_PRINTF(4, 5);

/* After getopt_long gave ':' or '?': says which option is wrong. The values of long options lie
 * above 255. names[] are the known ones, for "did you mean". Returns MH_CLI_USAGE. */
int mh_cli_bad_option(int answer, char *const *argv, const char *where, const char *todo,
                      const char *const *names, size_t count);

/* A whole number from `least` to MH_PLAN_MOST; MH_CLI_OK, or MH_CLI_USAGE with the reason said. */
int mh_cli_number(int *out, const char *text, int least, const char *option, const char *where);

/* Likewise for numbers that need not be small: up to 2^64 - 1. */
int mh_cli_whole(uint64_t *out, const char *text, int least, const char *option, const char *where);

/* Likewise for bytes ("4096", "512MB", "1.5GiB"; GB is 10^9) and for seconds above 0. */
int mh_cli_size(uint64_t *out, const char *text, int least, const char *option, const char *where);
int mh_cli_seconds(double *out, const char *text, const char *option, const char *where);

/* Likewise for "64x64": up to `most` sizes into out[], how many into *count. */
int mh_cli_shape(uint64_t *out, size_t most, size_t *count, const char *text, const char *option,
                 const char *where);

/* "4.1 kB" for people; returns `out`. */
#define MH_CLI_BYTES 16
const char *mh_cli_bytes(char out[MH_CLI_BYTES], uint64_t bytes);

/* "83.1 ms" for people: a unit and three digits; returns `out`. */
#define MH_CLI_TIME 16
const char *mh_cli_time(char out[MH_CLI_TIME], double seconds);

/* A JSON string: paths and messages may hold anything. */
void mh_cli_print_quoted(const char *text);

/* `millhead plan`; argv[0] is the verb. Returns the exit code. */
int mh_cmd_plan(int argc, char **argv);

/* `millhead probe`, `millhead doctor`, `millhead explain`, `millhead export`: likewise. */
int mh_cmd_probe(int argc, char **argv);
int mh_cmd_doctor(int argc, char **argv);
int mh_cmd_explain(int argc, char **argv);
int mh_cmd_export(int argc, char **argv);

/* `millhead report`: likewise. */
int mh_cmd_report(int argc, char **argv);

/* `millhead list`, `millhead inspect`, `millhead read`, `millhead synth`: likewise. */
int mh_cmd_cache(int argc, char **argv);
int mh_cmd_list(int argc, char **argv);
int mh_cmd_stage(int argc, char **argv);
int mh_cmd_inspect(int argc, char **argv);
int mh_cmd_read(int argc, char **argv);
int mh_cmd_synth(int argc, char **argv);

/* What to do about a run that cannot be read, or what is made of it and cannot be written. */
const char *mh_cli_run_remedy(mh_status status);

/* Whether writing `out` (NULL: nothing) would destroy what is read of `run`. */
bool mh_cli_is_source(const char *out, const char *run);

/* What to do about a file of --probe that cannot be used. */
#define MH_CLI_PROBE_REMEDY "make it with: millhead probe PATH --json > FILE"

/* What is said of a URL that was not asked yet: user, password and query may be secret. */
#define MH_CLI_SOME_URL "the URL"

/* A verb that needs the user's Python: becomes `python -m millhead VERB ...`, of MILLHEAD_PYTHON,
 * of the interpreter beside this program, or of python3 in PATH. Returns only when that fails. */
int mh_cmd_python(int argc, char **argv);

#endif
