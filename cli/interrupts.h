/* interrupts.h - Ctrl-C, and whoever else ends the command, for verbs that have something to clear
 * up SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_CLI_INTERRUPTS_H
#define MILLHEAD_CLI_INTERRUPTS_H

#include <stdbool.h>

/* From now on SIGINT, SIGTERM and SIGHUP do nothing but set what mh_cli_interrupted says; those
 * that are ignored stay so. */
void mh_cli_heed_signals(void);
bool mh_cli_interrupted(void);

#endif
