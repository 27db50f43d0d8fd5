/* synth_weather.c - millhead synth weather: a cube of weather as a Zarr store
 * SPDX-License-Identifier: Apache-2.0
 *
 * Four variables over time, latitude and longitude: waves of several sizes that move, fine noise,
 * and steps of 0.00148 as packed data has them. Every value follows from the seed and its place
 * alone, so that stores of any chunk shape hold the same.
 */
#include "synth_weather.h"

#include "interrupts.h"
#include "options.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <mh_config.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if MH_HAVE_ZSTD
#include <zstd.h>
#endif
#if MH_HAVE_BLOSC
#include <blosc.h>
#endif

#define WHERE "synth weather"
#define STEP 0.00148 /* between values, as GRIB's packing leaves it */
#define WAVES 5
#define DIMS 3

static const char *const variables[] = {"msl", "t2m", "u10", "v10"};
enum { VARIABLES = sizeof variables / sizeof *variables };

/* Waves round the globe and from pole to pole, in turns; how far they move in a step of time. */
static const struct {
    double height, round, along, speed;
} waves[WAVES] = {{6, 3, 2, 0.05},
                  {3, 11, -5, 0.11},
                  {1.2, 37, 19, 0.23},
                  {0.5, 113, -57, 0.31},
                  {0.2, 211, 97, 0.41}};

typedef struct weather {
    const char *words[1]; /* the directory */
    uint64_t count, seed, lat, lon;
    const char *chunks, *codec;
    bool json, help;
    /* --- found out --- */
    char part[PATH_MAX]; /* written here, then renamed */
    uint64_t shape[DIMS], chunk[DIMS];
    double *tables; /* sin and cos of each wave along both axes */
    float *values;  /* of one chunk */
    uint8_t *packed;
    size_t packed_room;
    uint64_t bytes, files;
} weather;

static void print_help(void)
{
    (void)printf(
        "usage: millhead synth weather DIR --count T [OPTIONS]\n"
        "\n"
        "Writes DIR, a Zarr 3 store: msl, t2m, u10 and v10 over time, lat and lon, float32.\n"
        "Values depend on the seed alone, not on how they are stored.\n"
        "\n"
        "options:\n"
        "  --count T      steps of time\n"
        "  --seed S       default 0\n"
        "  --lat N        default 721\n"
        "  --lon N        default 1440\n"
        "  --chunks KIND  fields: one step of time, the whole globe (default);\n"
        "                 patches: 8 x 181 x 360\n"
        "  --codec NAME   none, zstd, blosc-lz4 or blosc-zstd (default: blosc-lz4 where this\n"
        "                 build has it, else none)\n"
        "  --json         one JSON object: files, bytes\n"
        "  --help         this text\n");
}

static bool has_codec(const char *name)
{
    return strcmp(name, "none") == 0 || (MH_HAVE_ZSTD && strcmp(name, "zstd") == 0) ||
           (MH_HAVE_BLOSC && (strcmp(name, "blosc-lz4") == 0 || strcmp(name, "blosc-zstd") == 0));
}

static int parse(weather *w, int argc, char **argv)
{
    const mh_cli_option table[] = {
        {"--count", MH_CLI_WHOLE, &w->count, 1},  {"--seed", MH_CLI_WHOLE, &w->seed, 0},
        {"--lat", MH_CLI_WHOLE, &w->lat, 1},      {"--lon", MH_CLI_WHOLE, &w->lon, 1},
        {"--chunks", MH_CLI_TEXT, &w->chunks, 0}, {"--codec", MH_CLI_TEXT, &w->codec, 0},
        {"--json", MH_CLI_FLAG, &w->json, 0},     {"--help", MH_CLI_FLAG, &w->help, 0},
    };
    const char *todo = "see millhead synth weather --help";
    int bad = mh_cli_read(table, sizeof table / sizeof *table, w->words, 1, argc, argv, WHERE);
    if (bad || w->help)
        return bad;
    if (!w->words[0])
        return mh_cli_fail(MH_CLI_USAGE, WHERE, todo, "no directory given");
    if (!w->count)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, todo, "no --count given");
    if (w->lat > 1 << 16 || w->lon > 1 << 16 || w->count > UINT64_C(1) << 32)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "give less", "the cube is too large");
    if (!has_codec(w->codec))
        return mh_cli_fail(MH_CLI_USAGE, WHERE, todo, "unknown codec '%s', or not in this build",
                           w->codec);
    bool patches = strcmp(w->chunks, "patches") == 0;
    if (!patches && strcmp(w->chunks, "fields") != 0)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, todo, "unknown chunks '%s'", w->chunks);
    const uint64_t shape[] = {w->count, w->lat, w->lon};
    const uint64_t chunk[] = {patches ? 8 : 1, patches ? 181 : w->lat, patches ? 360 : w->lon};
    memcpy(w->shape, shape, sizeof shape);
    memcpy(w->chunk, chunk, sizeof chunk);
    return MH_CLI_OK;
}

/* --- values --- */

/* splitmix64 */
static uint64_t drawn(uint64_t seed, uint64_t at)
{
    uint64_t bits = seed + (at + 1) * UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

/* sin(a + b) from the sines and cosines of both: no sine for each value. */
static double *table_at(const weather *w, int wave, bool along_lat, uint64_t at)
{
    uint64_t row = (uint64_t)wave * (w->lat + w->lon) + (along_lat ? w->lon : 0) + at;
    return w->tables + 2 * row;
}

static void fill_tables(weather *w)
{
    for (int wave = 0; wave < WAVES; wave++) {
        for (uint64_t x = 0; x < w->lon; x++) {
            double angle = waves[wave].round * 2 * M_PI * (double)x / (double)w->lon;
            table_at(w, wave, false, x)[0] = sin(angle);
            table_at(w, wave, false, x)[1] = cos(angle);
        }
        for (uint64_t y = 0; y < w->lat; y++) {
            double angle = waves[wave].along * M_PI * ((double)y / (double)w->lat - 0.5);
            table_at(w, wave, true, y)[0] = sin(angle);
            table_at(w, wave, true, y)[1] = cos(angle);
        }
    }
}

/* One row along lon, from `from` on; what is beyond the array stays 0. */
static void fill_row(const weather *w, int variable, uint64_t time, uint64_t y, uint64_t from,
                     float *out)
{
    double sines[WAVES], cosines[WAVES];
    const double tilt = M_PI * ((double)y / (double)w->lat - 0.5);
    const double base = 288 + variable - 40 * sin(tilt) * sin(tilt);
    for (int wave = 0; wave < WAVES; wave++) {
        double phase = waves[wave].speed * (double)time + variable;
        const double *lat = table_at(w, wave, true, y);
        sines[wave] = waves[wave].height * (lat[0] * cos(phase) + lat[1] * sin(phase));
        cosines[wave] = waves[wave].height * (lat[1] * cos(phase) - lat[0] * sin(phase));
    }
    const uint64_t place = (time * VARIABLES + (uint64_t)variable) * w->lat + y;
    for (uint64_t x = from; x < w->lon && x < from + w->chunk[2]; x++) {
        double value = base + 0.15 * ((double)(drawn(w->seed, place * w->lon + x) >> 11) * 0x1p-53);
        for (int wave = 0; wave < WAVES; wave++) {
            const double *lon = table_at(w, wave, false, x);
            value += lon[0] * cosines[wave] + lon[1] * sines[wave];
        }
        out[x - from] = (float)(220 + STEP * floor((value - 220) / STEP));
    }
}

/* --- files --- */

static bool write_file(weather *w, const char *name, const void *bytes, size_t size)
{
    char path[2 * PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", w->part, name);
    for (char *at = path + strlen(w->part) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return false;
        *at = '/';
    }
    FILE *file = fopen(path, "wxe");
    if (!file)
        return false;
    bool good = size == 0 || fwrite(bytes, size, 1, file) == 1;
    w->bytes += size;
    w->files++;
    return (fclose(file) == 0) && good && !mh_cli_interrupted();
}

/* The chunk's bytes as stored; 0: the library failed. */
static size_t pack(weather *w, size_t size, const void **out)
{
    *out = w->values;
    size_t packed = size;
#if MH_HAVE_ZSTD
    if (strcmp(w->codec, "zstd") == 0) {
        packed = ZSTD_compress(w->packed, w->packed_room, w->values, size, 1);
        *out = w->packed;
        if (ZSTD_isError(packed))
            return 0;
    }
#endif
#if MH_HAVE_BLOSC
    if (strncmp(w->codec, "blosc-", 6) == 0) {
        int level = strcmp(w->codec, "blosc-zstd") == 0 ? 1 : 5;
        int got = blosc_compress_ctx(level, BLOSC_SHUFFLE, 4, size, w->values, w->packed,
                                     w->packed_room, w->codec + 6, 0, 1);
        packed = got > 0 ? (size_t)got : 0;
        *out = w->packed;
    }
#endif
    return packed;
}

static bool write_chunk(weather *w, int variable, const uint64_t *at)
{
    char name[128];
    const void *bytes;
    const size_t values = w->chunk[0] * w->chunk[1] * w->chunk[2];
    memset(w->values, 0, values * sizeof *w->values);
    for (uint64_t t = 0; t < w->chunk[0]; t++)
        for (uint64_t y = 0; y < w->chunk[1]; y++) {
            uint64_t time = at[0] * w->chunk[0] + t, lat = at[1] * w->chunk[1] + y;
            if (time < w->count && lat < w->lat)
                fill_row(w, variable, time, lat, at[2] * w->chunk[2],
                         w->values + (t * w->chunk[1] + y) * w->chunk[2]);
        }
    size_t size = pack(w, values * sizeof *w->values, &bytes);
    (void)snprintf(name, sizeof name, "%s/c/%" PRIu64 "/%" PRIu64 "/%" PRIu64, variables[variable],
                   at[0], at[1], at[2]);
    errno = size ? errno : EIO;
    return size && write_file(w, name, bytes, size);
}

static bool write_chunks(weather *w, int variable)
{
    uint64_t count[DIMS], at[DIMS];
    for (int i = 0; i < DIMS; i++)
        count[i] = (w->shape[i] + w->chunk[i] - 1) / w->chunk[i];
    for (at[0] = 0; at[0] < count[0]; at[0]++)
        for (at[1] = 0; at[1] < count[1]; at[1]++)
            for (at[2] = 0; at[2] < count[2]; at[2]++)
                if (!write_chunk(w, variable, at))
                    return false;
    return true;
}

/* --- metadata --- */

static const char *codec_text(const weather *w)
{
    if (strcmp(w->codec, "zstd") == 0)
        return ", {\"name\": \"zstd\", \"configuration\": {\"level\": 1, \"checksum\": false}}";
    if (strcmp(w->codec, "blosc-lz4") == 0)
        return ", {\"name\": \"blosc\", \"configuration\": {\"cname\": \"lz4\", \"clevel\": 5, "
               "\"shuffle\": \"shuffle\", \"typesize\": 4, \"blocksize\": 0}}";
    if (strcmp(w->codec, "blosc-zstd") == 0)
        return ", {\"name\": \"blosc\", \"configuration\": {\"cname\": \"zstd\", \"clevel\": 1, "
               "\"shuffle\": \"shuffle\", \"typesize\": 4, \"blocksize\": 0}}";
    return "";
}

static int array_text(const weather *w, const char *name, char *out, size_t room)
{
    static const char *const dims[] = {"time", "lat", "lon"};
    static const char *const units[] = {"hours since 2001-01-01", "degrees_north", "degrees_east"};
    static const char end[] =
        ", \"chunk_key_encoding\": {\"name\": \"default\", \"configuration\": "
        "{\"separator\": \"/\"}}, \"fill_value\": 0.0, \"codecs\": [{\"name\": "
        "\"bytes\", \"configuration\": {\"endian\": \"little\"}}";
    for (int i = 0; i < DIMS; i++)
        if (strcmp(name, dims[i]) == 0)
            return snprintf(
                out, room,
                "{\"zarr_format\": 3, \"node_type\": \"array\", \"shape\": [%" PRIu64
                "], \"data_type\": \"float64\", \"chunk_grid\": {\"name\": \"regular\", "
                "\"configuration\": {\"chunk_shape\": [%" PRIu64 "]}}%s], "
                "\"dimension_names\": [\"%s\"], \"attributes\": {\"units\": \"%s\"}}",
                w->shape[i], w->shape[i], end, name, units[i]);
    return snprintf(out, room,
                    "{\"zarr_format\": 3, \"node_type\": \"array\", \"shape\": [%" PRIu64
                    ", %" PRIu64 ", %" PRIu64
                    "], \"data_type\": \"float32\", \"chunk_grid\": {\"name\": "
                    "\"regular\", \"configuration\": {\"chunk_shape\": [%" PRIu64 ", %" PRIu64
                    ", %" PRIu64 "]}}%s%s], \"dimension_names\": [\"time\", \"lat\", \"lon\"], "
                    "\"attributes\": {}}",
                    w->shape[0], w->shape[1], w->shape[2], w->chunk[0], w->chunk[1], w->chunk[2],
                    end, codec_text(w));
}

/* Each array's zarr.json, and all of them in the group's. */
static bool write_metadata(weather *w)
{
    static const char *const names[] = {"lat", "lon", "msl", "t2m", "time", "u10", "v10"};
    char all[16384], one[2048], name[64];
    int used = snprintf(all, sizeof all,
                        "{\"zarr_format\": 3, \"node_type\": \"group\", \"attributes\": {}, "
                        "\"consolidated_metadata\": {\"kind\": \"inline\", \"must_understand\": "
                        "false, \"metadata\": {");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int size = array_text(w, names[i], one, sizeof one);
        (void)snprintf(name, sizeof name, "%s/zarr.json", names[i]);
        if (!write_file(w, name, one, (size_t)size))
            return false;
        used += snprintf(all + used, sizeof all - (size_t)used, "%s\"%s\": %s", i ? ", " : "",
                         names[i], one);
    }
    used += snprintf(all + used, sizeof all - (size_t)used, "}}}");
    return write_file(w, "zarr.json", all, (size_t)used);
}

static bool write_coordinates(weather *w)
{
    static const char *const names[] = {"time/c/0", "lat/c/0", "lon/c/0"};
    bool good = true;
    for (int i = 0; i < DIMS && good; i++) {
        const uint64_t count = w->shape[i];
        double *values = calloc(count, sizeof *values);
        for (uint64_t k = 0; values && k < count; k++)
            values[k] = i == 0   ? (double)k
                        : i == 1 ? 90 - 180 * (double)k / (double)(count > 1 ? count - 1 : 1)
                                 : 360 * (double)k / (double)count;
        good = values && write_file(w, names[i], values, count * sizeof *values);
        free(values);
    }
    return good;
}

/* --- all --- */

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about;
    (void)kind;
    (void)where;
    return remove(path);
}

static int fail_write(const weather *w)
{
    int number = errno;
    (void)nftw(w->part, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (mh_cli_interrupted())
        return mh_cli_fail(MH_CLI_INTERRUPTED, WHERE, "run it again",
                           "interrupted, and nothing left half written");
    return mh_cli_fail(MH_CLI_FAILED, WHERE, "name a directory that can be written, with room",
                       "cannot write %s: %s", w->words[0], strerror(number));
}

static bool write_all(weather *w)
{
    const size_t values = w->chunk[0] * w->chunk[1] * w->chunk[2];
    w->packed_room = values * sizeof *w->values * 9 / 8 + 4096;
    w->tables = calloc(2 * WAVES * (w->lat + w->lon), sizeof *w->tables);
    w->values = calloc(values, sizeof *w->values);
    w->packed = calloc(w->packed_room, 1);
    bool good = w->tables && w->values && w->packed && mkdir(w->part, 0777) == 0;
    if (good)
        fill_tables(w);
    good = good && write_coordinates(w);
    for (int i = 0; i < VARIABLES && good; i++)
        good = write_chunks(w, i);
    good = good && write_metadata(w) && rename(w->part, w->words[0]) == 0;
    free(w->tables);
    free(w->values);
    free(w->packed);
    return good;
}

int mh_synth_weather(int argc, char **argv)
{
    struct stat about;
    weather w = {
        .lat = 721, .lon = 1440, .chunks = "fields", .codec = MH_HAVE_BLOSC ? "blosc-lz4" : "none"};
    int code = parse(&w, argc, argv);
    if (code != MH_CLI_OK)
        return code;
    if (w.help) {
        print_help();
        return MH_CLI_OK;
    }
    if (stat(w.words[0], &about) == 0)
        return mh_cli_fail(MH_CLI_FAILED, WHERE, "remove it, or name another directory",
                           "%s is there already", w.words[0]);
    if (snprintf(w.part, sizeof w.part, "%s.part", w.words[0]) >= (int)sizeof w.part - 128)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "name a shorter one", "the path is too long");
    mh_cli_heed_signals();
    if (!write_all(&w))
        return fail_write(&w);
    char bytes[MH_CLI_BYTES];
    if (w.json)
        (void)printf("{\"files\": %" PRIu64 ", \"bytes\": %" PRIu64 "}\n", w.files, w.bytes);
    else
        (void)printf("%s: %" PRIu64 " files, %s\n", w.words[0], w.files,
                     mh_cli_bytes(bytes, w.bytes));
    return MH_CLI_OK;
}
