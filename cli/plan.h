/* plan.h - the subjects of `millhead plan`, one file each
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_CLI_PLAN_H
#define MILLHEAD_CLI_PLAN_H

#include "cli.h"

#include <stdbool.h>

/* Each takes the arguments after `plan SUBJECT`, argv[0] being the subject, and returns the exit
 * code. */
int mh_plan_cmd_cpus(int argc, char **argv);
int mh_plan_cmd_memory(int argc, char **argv);
int mh_plan_cmd_threads(int argc, char **argv);
int mh_plan_cmd_chunks(int argc, char **argv);
/* `plan chunks STORE`. */
int mh_plan_cmd_store(int argc, char **argv);
extern const char mh_plan_store_help[];
void mh_plan_chunks_print_help(void);
int mh_plan_cmd_whatif(int argc, char **argv);

/* The GPUs of this machine: device nodes nvidia0, nvidia1, ... and not nvidiactl or nvidia-uvm.
 * No library is loaded and no context is made. */
int mh_plan_count_gpus(void);

#endif
