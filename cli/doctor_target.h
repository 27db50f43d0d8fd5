/* doctor_target.h - what the words of `millhead doctor` name: a program, a run, a benchmark
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_CLI_DOCTOR_TARGET_H
#define MILLHEAD_CLI_DOCTOR_TARGET_H

#include <stdbool.h>

/* Whether the command line names a program to run: after `--`, a Python script, or a command that
 * is found where a shell would find it and is no recorded run. Such a line is Python's business. */
bool mh_doctor_has_program(int argc, char **argv);

/* The first word, where arguments follow it as they do a program, and there is neither such a
 * program nor such a file; else NULL. */
const char *mh_doctor_unknown(int argc, char **argv);

/* Whether the directory was written by `millhead bench`: it holds runs but is not one itself. */
bool mh_doctor_is_bench(const char *path);

/* Prints the runs of such a directory, and how to look at one. Returns the exit code. */
int mh_doctor_list_runs(const char *path, bool json);

#endif
