/* python.c - verbs that need the user's Python: become it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Not `-m millhead`, which would take a directory of that name in the working directory for the
 * package, and say something longer where there is none. */
static const char boot[] =
    "import sys\n"
    "if sys.path[:1] == ['']: del sys.path[0]\n"
    "try:\n"
    "    from millhead.__main__ import main\n"
    "except ImportError as error:\n"
    "    print('millhead: no package millhead: %s (%s): install it there, or set MILLHEAD_PYTHON "
    "'\n"
    "          'to the Python that has it' % (error, sys.executable), file=sys.stderr)\n"
    "    sys.exit(2)\n"
    "except KeyboardInterrupt:\n"
    "    sys.exit(130)\n"
    "sys.exit(main())\n";

/* The interpreter in the directory of this program, as in a virtual environment; NULL: none. */
static const char *python_beside(void)
{
    static const char *const names[] = {"python3", "python"};
    static char path[PATH_MAX + sizeof "/python3"];
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0)
        return NULL;
    program[length] = '\0';
    const char *directory = dirname(program);
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        (void)snprintf(path, sizeof path, "%s/%s", directory, names[at]);
        if (access(path, X_OK) == 0)
            return path;
    }
    return NULL;
}

int mh_cmd_python(int argc, char **argv)
{
    const char *python = getenv("MILLHEAD_PYTHON");
    if (!python || !*python)
        python = python_beside();
    if (!python)
        python = "python3";
    /* python -c boot VERB ARGUMENTS... NULL */
    const char **command = calloc((size_t)argc + 4, sizeof *command);
    if (!command)
        return mh_cli_fail(MH_CLI_FAILED, argv[0], "free some memory", "out of memory");
    command[0] = python;
    command[1] = "-c";
    command[2] = boot;
    memcpy(command + 3, argv, (size_t)argc * sizeof *argv);
    (void)execvp(python, (char *const *)command);
    int code = mh_cli_fail(MH_CLI_USAGE, argv[0], "set MILLHEAD_PYTHON to the Python to use",
                           "cannot start Python '%s': %s", python, strerror(errno));
    free(command);
    return code;
}
