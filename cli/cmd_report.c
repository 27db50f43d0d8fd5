/* cmd_report.c - millhead report: draw runs as one page for a browser, or as pictures
 * SPDX-License-Identifier: Apache-2.0
 */
#include "options.h"
#include "progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEE_HELP "see millhead report --help"
#define PNG_PROGRAM "rsvg-convert"

typedef struct report_request {
    const char **runs; /* of argc places, the rest NULL */
    size_t run_count;
    const char *output, *svg, *png;
    bool json, help;
} report_request;

/* Pictures written so far. */
typedef struct files {
    char **paths;
    size_t count;
} files;

static void print_help(void)
{
    (void)printf(
        "usage: millhead report RUN... -o report.html [--svg DIR] [--png DIR] [--json]\n"
        "\n"
        "Writes one page that holds everything: the verdict, a timeline with a row per worker,\n"
        "the waits, a table of the stages, CPU and memory, parameters and environment. It works\n"
        "offline. RUN is the directory of a run, an events file, a log of Earthmover's, or what\n"
        "`millhead bench` wrote; several are compared.\n"
        "\n"
        "options:\n"
        "  -o FILE     the page\n"
        "  --svg DIR   every picture as SVG\n"
        "  --png DIR   every picture as PNG, made by " PNG_PROGRAM " (package librsvg2-bin)\n"
        "  --json      one JSON object: output, bytes, runs, pictures\n"
        "  --help      this text\n");
}

static int parse(report_request *request, int argc, char **argv)
{
    const mh_cli_option options[] = {
        {"-o", MH_CLI_TEXT, &request->output, 0},   {"--output", MH_CLI_TEXT, &request->output, 0},
        {"--svg", MH_CLI_TEXT, &request->svg, 0},   {"--png", MH_CLI_TEXT, &request->png, 0},
        {"--json", MH_CLI_FLAG, &request->json, 0}, {"--help", MH_CLI_FLAG, &request->help, 0},
    };
    request->runs = calloc((size_t)argc, sizeof *request->runs);
    if (!request->runs)
        return mh_cli_fail(MH_CLI_FAILED, "report", "free some memory", "no memory");
    int bad = mh_cli_read(options, sizeof options / sizeof *options, request->runs, (size_t)argc,
                          argc, argv, "report");
    if (bad || request->help)
        return bad;
    while (request->runs[request->run_count])
        request->run_count++;
    if (!request->run_count)
        return mh_cli_fail(MH_CLI_USAGE, "report", SEE_HELP, "no run given");
    if (!request->output && !request->svg && !request->png)
        return mh_cli_fail(MH_CLI_USAGE, "report", "say -o report.html, --svg DIR or --png DIR",
                           "nowhere to write");
    for (size_t at = 0; at < request->run_count; at++)
        if (mh_cli_is_source(request->output, request->runs[at]))
            return mh_cli_fail(MH_CLI_USAGE, "report", "name another file with -o",
                               "what is reported would be written over");
    return MH_CLI_OK;
}

/* --- pictures --- */

static void files_add(void *argument, const char *path)
{
    files *list = argument;
    char **grown = realloc(list->paths, (list->count + 1) * sizeof *grown);
    if (!grown)
        return;
    list->paths = grown;
    list->paths[list->count] = strdup(path);
    list->count += list->paths[list->count] != NULL;
}

static void files_free(files *list)
{
    for (size_t at = 0; at < list->count; at++)
        free(list->paths[at]);
    free(list->paths);
}

/* Runs the program to its end; its exit code, 127: it is not there. */
static int run_program(char *const *command)
{
    int how = 0;
    pid_t child = fork();
    if (child == 0) {
        (void)execvp(command[0], command);
        _exit(127);
    }
    if (child < 0)
        return 126;
    while (waitpid(child, &how, 0) < 0)
        if (errno != EINTR)
            return 126;
    return WIFEXITED(how) ? WEXITSTATUS(how) : 126;
}

/* SVG files to PNG files of twice their size in `directory`. */
static int make_pngs(const files *svgs, const char *directory, files *made)
{
    char out[4096];
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        return mh_cli_fail(MH_CLI_FAILED, "report", "check where the pictures go",
                           "cannot make the directory %s: %s", directory, strerror(errno));
    for (size_t at = 0; at < svgs->count; at++) {
        const char *name = strrchr(svgs->paths[at], '/');
        name = name ? name + 1 : svgs->paths[at];
        (void)snprintf(out, sizeof out, "%s/%.*s.png", directory, (int)(strlen(name) - 4), name);
        char *command[] = {PNG_PROGRAM, "--zoom=2", "-o", out, svgs->paths[at], NULL};
        int code = run_program(command);
        if (code == 127)
            return mh_cli_fail(MH_CLI_FAILED, "report", "install librsvg2-bin, or take --svg",
                               "no program " PNG_PROGRAM " to make PNG files with");
        if (code)
            return mh_cli_fail(MH_CLI_FAILED, "report", "check where the pictures go",
                               PNG_PROGRAM " could not write %s", out);
        files_add(made, out);
    }
    return MH_CLI_OK;
}

static void remove_all(const files *list, const char *directory)
{
    for (size_t at = 0; at < list->count; at++)
        (void)unlink(list->paths[at]);
    (void)rmdir(directory);
}

/* Both kinds; without --svg the SVG files are made for the PNG files only. */
static int write_pictures(const mh_page *page, const report_request *request, files *made)
{
    char scratch[] = "/tmp/millhead-report-XXXXXX";
    files svgs = {0};
    mh_error err;
    int code = MH_CLI_OK;
    const char *directory = request->svg;
    if (!directory && !request->png)
        return MH_CLI_OK;
    if (!directory && !(directory = mkdtemp(scratch)))
        return mh_cli_fail(MH_CLI_FAILED, "report", "take --svg as well",
                           "cannot make a directory in /tmp: %s", strerror(errno));
    mh_status status = mh_page_write_svg(page, directory, files_add, &svgs, &err);
    if (status != MH_OK)
        code = mh_cli_fail(MH_CLI_FAILED, "report", mh_cli_run_remedy(status), "%s", err.message);
    else if (request->png)
        code = make_pngs(&svgs, request->png, made);
    if (!request->svg)
        remove_all(&svgs, directory);
    for (size_t at = 0; at < svgs.count && request->svg; at++)
        files_add(made, svgs.paths[at]);
    files_free(&svgs);
    return code;
}

/* --- the result --- */

static int print_json(const mh_page *page, const report_request *request, const files *made,
                      uint64_t bytes)
{
    char *runs = NULL;
    mh_error err;
    mh_status status = mh_page_json(&runs, page, &err);
    if (status != MH_OK)
        return mh_cli_fail(MH_CLI_FAILED, "report", mh_cli_run_remedy(status), "%s", err.message);
    (void)printf("{\"output\": ");
    if (request->output)
        mh_cli_print_quoted(request->output);
    else
        (void)printf("null");
    (void)printf(", \"bytes\": %" PRIu64 ", \"runs\": %s, \"pictures\": [", bytes, runs);
    for (size_t at = 0; at < made->count; at++) {
        (void)printf(at ? ", " : "");
        mh_cli_print_quoted(made->paths[at]);
    }
    (void)printf("]}\n");
    mh_text_free(runs);
    return MH_CLI_OK;
}

static int read_runs(mh_page *page, const report_request *request)
{
    mh_error err;
    for (size_t at = 0; at < request->run_count; at++) {
        mh_progress progress;
        mh_progress_begin(&progress, "reading", request->runs[at]);
        mh_status status = mh_page_add(page, request->runs[at], mh_progress_bytes, &progress, &err);
        mh_progress_end(&progress);
        if (status != MH_OK)
            return mh_cli_fail(MH_CLI_FAILED, "report", mh_cli_run_remedy(status), "%s",
                               err.message);
    }
    return MH_CLI_OK;
}

static int make_report(const report_request *request)
{
    mh_page *page = NULL;
    mh_error err;
    files made = {0};
    uint64_t bytes = 0;
    mh_status status = mh_page_new(&page, request->run_count, &err);
    int code = status == MH_OK ? read_runs(page, request) : MH_CLI_FAILED;
    if (status == MH_OK && code == MH_CLI_OK && request->output)
        status = mh_page_write(page, request->output, &bytes, &err);
    if (status != MH_OK)
        code = mh_cli_fail(MH_CLI_FAILED, "report", mh_cli_run_remedy(status), "%s", err.message);
    if (code == MH_CLI_OK && request->output && !request->json)
        (void)printf("%s: %.1f MB\n", request->output, (double)bytes / 1e6);
    if (code == MH_CLI_OK)
        code = write_pictures(page, request, &made);
    if (code == MH_CLI_OK && request->json)
        code = print_json(page, request, &made, bytes);
    else if (code == MH_CLI_OK)
        for (size_t at = 0; at < made.count; at++)
            (void)printf("%s\n", made.paths[at]);
    files_free(&made);
    mh_page_free(page);
    return code;
}

int mh_cmd_report(int argc, char **argv)
{
    report_request request = {0};
    int code = parse(&request, argc, argv);
    if (code == MH_CLI_OK && request.help)
        print_help();
    else if (code == MH_CLI_OK)
        code = make_report(&request);
    free(request.runs);
    return code;
}
