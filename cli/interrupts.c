/* interrupts.c - signals that end the command, as a flag to look at
 * SPDX-License-Identifier: Apache-2.0
 */
#include "interrupts.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

void mh_cli_heed_signals(void)
{
    struct sigaction heed = {.sa_handler = on_signal}, was;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++)
        if (sigaction(numbers[at], NULL, &was) == 0 && was.sa_handler != SIG_IGN)
            (void)sigaction(numbers[at], &heed, NULL);
}

bool mh_cli_interrupted(void)
{
    return interrupted;
}
