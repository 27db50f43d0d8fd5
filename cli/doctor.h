/* doctor.h - what the parts of `millhead doctor` share
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_CLI_DOCTOR_H
#define MILLHEAD_CLI_DOCTOR_H

#include "cli.h"

#include <stdbool.h>

/* Prints a diagnosis on standard output: for people, or as one line of JSON. */
void mh_doctor_print(const mh_verdict *verdict, const mh_facts *facts, const mh_wait_stats *waits,
                     uint64_t bad_lines, double setup_s, bool json);

/* A running process, looked at for so many seconds. Returns the exit code. */
int mh_doctor_pid(int pid, bool json, double seconds);

/* What to check about this machine. Returns the exit code. */
int mh_doctor_checklist(bool json);

#endif
