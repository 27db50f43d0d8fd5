/* cmd_synth.c - millhead synth: make data to try things with, from a seed
 * SPDX-License-Identifier: Apache-2.0
 */
#include "interrupts.h"
#include "options.h"
#include "synth.h"
#include "synth_weather.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WHERE "synth"
#define HEAD_BYTES 128u /* magic and header text, as NumPy pads them */
#define CLASSES 1000u
#define MOST_VALUES (UINT64_C(1) << 50)

typedef struct synth_request {
    const char *words[2]; /* the kind and the directory */
    uint64_t count, seed, columns;
    bool odd, json, help;
} synth_request;

typedef struct synth_file {
    char path[PATH_MAX];
    const char *type; /* as NumPy writes it */
    size_t item_bytes;
    uint64_t columns; /* 0: one value a sample */
    FILE *file;
    uint64_t bytes;
} synth_file;

static void print_help(void)
{
    (void)printf(
        "usage: millhead synth KIND DIR --count N [--seed S] [--columns C] [--odd] [--json]\n"
        "\n"
        "Writes data that depends on the seed alone. Existing files are never overwritten.\n"
        "\n"
        "subjects:\n"
        "  npy       DIR/x.npy, float32 of N rows and C columns, and DIR/label.npy, int64 of N\n"
        "  imagenet  N pictures like ImageNet's in class folders: JPEG of about 114 KB\n"
        "  photos    N pictures of about 2 megapixels, in the same way\n"
        "  tokens    N tokens of documents, uint16: DIR/tokens.bin and Megatron's DIR/tokens.idx\n"
        "  weather   DIR, a Zarr store: see millhead synth weather --help\n"
        "\n"
        "options:\n"
        "  --count N    samples\n"
        "  --seed S     default 0\n"
        "  --columns C  values of a sample in x.npy (default 16)\n"
        "  --odd        a picture of each unusual kind more (progressive, grey, CMYK,\n"
        "               rotated by EXIF, truncated, a PNG named .JPEG)\n"
        "  --json       one JSON object: files, bytes; of pictures their number and a hash\n"
        "  --help       this text\n");
}

static bool is_pictures(const char *kind)
{
    return strcmp(kind, "imagenet") == 0 || strcmp(kind, "photos") == 0;
}

static int parse(synth_request *request, int argc, char **argv)
{
    const mh_cli_option table[] = {
        {"--count", MH_CLI_WHOLE, &request->count, 1},
        {"--seed", MH_CLI_WHOLE, &request->seed, 0},
        {"--columns", MH_CLI_WHOLE, &request->columns, 1},
        {"--odd", MH_CLI_FLAG, &request->odd, 0},
        {"--json", MH_CLI_FLAG, &request->json, 0},
        {"--help", MH_CLI_FLAG, &request->help, 0},
    };
    const char *todo = "see millhead synth --help";
    const char *known = "known kinds: npy, imagenet, photos, tokens, weather";
    int bad =
        mh_cli_read(table, sizeof table / sizeof *table, request->words, 2, argc, argv, WHERE);
    if (bad || request->help)
        return bad;
    if (!request->words[0])
        return mh_cli_fail(MH_CLI_USAGE, WHERE, known, "no kind of data given");
    bool pictures = is_pictures(request->words[0]);
    if (!pictures && strcmp(request->words[0], "npy") != 0 &&
        strcmp(request->words[0], "tokens") != 0)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, known, "unknown kind '%s'", request->words[0]);
    if (!request->words[1])
        return mh_cli_fail(MH_CLI_USAGE, WHERE, todo, "no directory given");
    if (!request->count)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, todo, "no --count given");
    if (request->odd && !pictures)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, todo, "--odd is for pictures");
    if (request->count > MOST_VALUES / request->columns)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "give less", "--count times --columns is too much");
    return MH_CLI_OK;
}

/* From -1 up to 1, each exactly a float. */
static uint32_t float_bits(uint64_t random)
{
    float value = (float)(int32_t)(random >> 40) / 8388608.0F - 1.0F;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return htole32(bits);
}

static bool write_head(synth_file *out, uint64_t count)
{
    /* version 1.0, 118 bytes follow */
    static const char begin[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, HEAD_BYTES - 10, 0};
    char head[HEAD_BYTES + 1], shape[64];
    if (out->columns)
        (void)snprintf(shape, sizeof shape, "(%" PRIu64 ", %" PRIu64 ")", count, out->columns);
    else
        (void)snprintf(shape, sizeof shape, "(%" PRIu64 ",)", count);
    memcpy(head, begin, sizeof begin);
    int length =
        snprintf(head + 10, sizeof head - 10,
                 "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", out->type, shape);
    memset(head + 10 + length, ' ', HEAD_BYTES - 10 - (size_t)length);
    head[HEAD_BYTES - 1] = '\n';
    return fwrite(head, HEAD_BYTES, 1, out->file) == 1;
}

/* False: errno says why, or a signal came. */
static bool write_file(synth_file *out, uint64_t count, uint64_t seed)
{
    uint64_t values = count * (out->columns ? out->columns : 1);
    if (!write_head(out, count))
        return false;
    for (uint64_t at = 0; at < values; at++) {
        uint64_t random = mh_synth_drawn(seed, at);
        uint64_t label = htole64(random % CLASSES);
        uint32_t real = float_bits(random);
        const void *item = out->item_bytes == sizeof real ? (const void *)&real : &label;
        if (fwrite(item, out->item_bytes, 1, out->file) != 1 || mh_cli_interrupted())
            return false;
    }
    out->bytes = HEAD_BYTES + values * out->item_bytes;
    FILE *file = out->file;
    out->file = NULL;
    return fclose(file) == 0;
}

static bool name_file(synth_file *file, const char *directory, const char *name)
{
    int length = snprintf(file->path, sizeof file->path, "%s/%s", directory, name);
    return length > 0 && (size_t)length < sizeof file->path;
}

/* What was written is removed; what was there before stays. */
static int fail_write(synth_file *files, size_t made, const char *path, const char *directory,
                      bool made_directory)
{
    int number = errno;
    for (size_t at = 0; at < made; at++) {
        if (files[at].file)
            (void)fclose(files[at].file);
        (void)unlink(files[at].path);
    }
    if (made_directory)
        (void)rmdir(directory);
    if (mh_cli_interrupted())
        return mh_cli_fail(MH_CLI_INTERRUPTED, WHERE, "run it again",
                           "interrupted, and nothing left half written");
    if (number == EEXIST)
        return mh_cli_fail(MH_CLI_FAILED, WHERE, "remove it, or name another directory",
                           "%s is there already", path);
    return mh_cli_fail(MH_CLI_FAILED, WHERE, "name a directory that can be written, with room",
                       "cannot write %s: %s", path, strerror(number));
}

static int write_all(synth_file files[2], const synth_request *request)
{
    const char *directory = request->words[1];
    bool made_directory = mkdir(directory, 0777) == 0;
    if (!made_directory && errno != EEXIST)
        return fail_write(files, 0, directory, directory, false);
    for (size_t at = 0; at < 2; at++)
        if (!(files[at].file = fopen(files[at].path, "wxe")))
            return fail_write(files, at, files[at].path, directory, made_directory);
    for (size_t at = 0; at < 2; at++)
        if (!write_file(&files[at], request->count, mh_synth_drawn(request->seed, at)))
            return fail_write(files, 2, files[at].path, directory, made_directory);
    return MH_CLI_OK;
}

static void print_files(const synth_file files[2], bool json)
{
    char bytes[MH_CLI_BYTES];
    uint64_t all = files[0].bytes + files[1].bytes;
    if (json)
        (void)printf("{\"files\": [");
    for (size_t at = 0; at < 2; at++) {
        if (!json) {
            (void)printf("%s: %s\n", files[at].path, mh_cli_bytes(bytes, files[at].bytes));
            continue;
        }
        (void)printf("%s", at ? ", " : "");
        mh_cli_print_quoted(files[at].path);
    }
    if (json)
        (void)printf("], \"bytes\": %" PRIu64 "}\n", all);
}

int mh_cmd_synth(int argc, char **argv)
{
    synth_request request = {.columns = 16};
    if (argc > 1 && strcmp(argv[1], "weather") == 0)
        return mh_synth_weather(argc - 1, argv + 1);
    int code = parse(&request, argc, argv);
    if (code != MH_CLI_OK)
        return code;
    if (request.help) {
        print_help();
        return MH_CLI_OK;
    }
    if (is_pictures(request.words[0])) {
        const mh_synth_pictures pictures = {.directory = request.words[1],
                                            .count = request.count,
                                            .seed = request.seed,
                                            .photos = strcmp(request.words[0], "photos") == 0,
                                            .odd = request.odd,
                                            .json = request.json};
        return mh_synth_imagenet(&pictures);
    }
    if (strcmp(request.words[0], "tokens") == 0)
        return mh_synth_tokens(request.words[1], request.count, request.seed, request.json);
    synth_file files[2] = {
        {.type = "<f4", .item_bytes = 4, .columns = request.columns},
        {.type = "<i8", .item_bytes = 8},
    };
    if (!name_file(&files[0], request.words[1], "x.npy") ||
        !name_file(&files[1], request.words[1], "label.npy"))
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "name a shorter one", "the path is too long");
    mh_cli_heed_signals();
    code = write_all(files, &request);
    if (code == MH_CLI_OK)
        print_files(files, request.json);
    return code;
}
