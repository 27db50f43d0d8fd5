/* synth_imagenet.c - millhead synth imagenet: pictures in class folders, about 114 KB each
 * SPDX-License-Identifier: Apache-2.0
 */
#include "synth.h"

#include "cli.h"
#include "interrupts.h"
#include "mh_config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WHERE "synth imagenet"

#if MH_HAVE_JPEG
#include <jpeglib.h>
#if MH_HAVE_PNG
#include <png.h>
#endif

/* One kind of pictures; sides differ by a quarter. */
typedef struct picture_kind {
    mh_scene scene;
    int quality;
    bool full_colour; /* 4:4:4, else colour has a quarter of the resolution */
} picture_kind;

/* About five bits for a pixel, as ImageNet has. */
static const picture_kind imagenet = {{500, 375, 360, 0.4F}, 96, true};
static const picture_kind photos = {{1600, 1200, 2500, 1.0F}, 90, false};

#define CLASSES_MOST 1000u
#define FILES_OF_CLASS 10u /* as long as there are no more classes than CLASSES_MOST */

typedef enum odd_kind {
    USUAL,
    PROGRESSIVE,
    GREY,
    CMYK,
    ROTATED,
    TRUNCATED,
    PNG_INSIDE,
    ODD_KINDS
} odd_kind;

static const char *const odd_names[ODD_KINDS] = {"",        "progressive", "grey",      "cmyk",
                                                 "rotated", "truncated",   "png_inside"};

typedef struct written {
    uint64_t files, bytes, hash;
} written;

/* EXIF with one entry: orientation 6, to be turned to the right. */
static const uint8_t exif[] = {'E', 'x',  'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1,
                               1,   0x12, 0,   3,   0, 0, 0,   1,   0, 6,  0, 0, 0, 0, 0, 0};

/* --- encoding --- */

/* CMYK as Adobe's programs write it: all values inverted, so that ink is light. */
static void put_row(struct jpeg_compress_struct *jpeg, const uint8_t *rgb, uint8_t *row,
                    odd_kind kind)
{
    JSAMPROW rows[1] = {row};
    for (JDIMENSION x = 0; x < jpeg->image_width; x++) {
        const uint8_t *pixel = rgb + 3 * (size_t)x;
        if (kind == GREY)
            row[x] = pixel[1];
        else if (kind == CMYK) {
            memcpy(row + 4 * (size_t)x, pixel, 3);
            row[4 * (size_t)x + 3] = 230;
        } else
            memcpy(row + 3 * (size_t)x, pixel, 3);
    }
    (void)jpeg_write_scanlines(jpeg, rows, 1);
}

static uint8_t *encode_jpeg(const uint8_t *rgb, const picture_kind *about, odd_kind kind,
                            unsigned long *size)
{
    const int width = about->scene.width, height = about->scene.height;
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    uint8_t *bytes = NULL, *row = malloc((size_t)width * 4);
    if (!row)
        return NULL;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &bytes, size);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = kind == GREY ? 1 : kind == CMYK ? 4 : 3;
    jpeg.in_color_space = kind == GREY ? JCS_GRAYSCALE : kind == CMYK ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, about->quality, TRUE);
    if (about->full_colour)
        jpeg.comp_info[0].h_samp_factor = jpeg.comp_info[0].v_samp_factor = 1;
    if (kind == PROGRESSIVE)
        jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    if (kind == ROTATED)
        jpeg_write_marker(&jpeg, JPEG_APP0 + 1, exif, sizeof exif);
    while (jpeg.next_scanline < jpeg.image_height)
        put_row(&jpeg, rgb + 3 * (size_t)width * jpeg.next_scanline, row, kind);
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    free(row);
    return bytes;
}

static uint8_t *encode(const uint8_t *rgb, const picture_kind *about, odd_kind kind,
                       unsigned long *size)
{
    uint8_t *bytes = NULL;
#if MH_HAVE_PNG
    if (kind == PNG_INSIDE) {
        png_image image = {.version = PNG_IMAGE_VERSION,
                           .width = (png_uint_32)about->scene.width,
                           .height = (png_uint_32)about->scene.height,
                           .format = PNG_FORMAT_RGB};
        png_alloc_size_t room = PNG_IMAGE_PNG_SIZE_MAX(image);
        bytes = malloc(room);
        if (!bytes || !png_image_write_to_memory(&image, bytes, &room, 0, rgb, 0, NULL)) {
            free(bytes);
            return NULL;
        }
        *size = room;
        return bytes;
    }
#endif
    bytes = encode_jpeg(rgb, about, kind, size);
    if (bytes && kind == TRUNCATED)
        *size = *size * 2 / 3;
    return bytes;
}

/* --- files --- */

/* FNV-1a, over names and bytes of all files in order. */
static void hash(written *all, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++)
        all->hash = (all->hash ^ bytes[i]) * UINT64_C(0x100000001b3);
}

static int fail_file(const char *path)
{
    if (errno == EEXIST)
        return mh_cli_fail(MH_CLI_FAILED, WHERE, "remove it, or name another directory",
                           "%s is there already", path);
    return mh_cli_fail(MH_CLI_FAILED, WHERE, "name a directory that can be written, with room",
                       "cannot write %s: %s", path, strerror(errno));
}

static int write_picture(const char *path, const picture_kind *usual, uint64_t seed, odd_kind kind,
                         written *all)
{
    picture_kind about = *usual;
    double scale = 0.75 + 0.5 * (double)(mh_synth_drawn(seed, 0) >> 11) * 0x1p-53;
    about.scene.width = (int)(about.scene.width * scale);
    about.scene.height = (int)(about.scene.height * scale);
    size_t pixels = (size_t)about.scene.width * (size_t)about.scene.height;
    unsigned long size = 0;
    uint8_t *rgb = malloc(pixels * 3), *bytes = NULL;
    if (rgb && mh_synth_scene(rgb, &about.scene, mh_synth_drawn(seed, 1)))
        bytes = encode(rgb, &about, kind, &size);
    free(rgb);
    if (!bytes)
        return mh_cli_fail(MH_CLI_FAILED, WHERE, "free some memory", "out of memory");
    FILE *file = fopen(path, "wxe");
    bool put = file && fwrite(bytes, size, 1, file) == 1;
    if (file && fclose(file) != 0)
        put = false;
    if (put) {
        const char *name = strrchr(path, '/') + 1;
        hash(all, name, strlen(name));
        hash(all, bytes, size);
        all->files++;
        all->bytes += size;
    }
    free(bytes);
    return put ? MH_CLI_OK : fail_file(path);
}

static int write_in_class(const mh_synth_pictures *request, uint64_t label, const char *name,
                          uint64_t number, odd_kind kind, written *all)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/n%08" PRIu64, request->directory, label);
    if (length < 0 || (size_t)length + strlen(name) + 2 > sizeof path)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "name a shorter one", "the path is too long");
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return fail_file(path);
    path[length] = '/';
    memcpy(path + length + 1, name, strlen(name) + 1);
    return write_picture(path, request->photos ? &photos : &imagenet,
                         mh_synth_drawn(request->seed, number), kind, all);
}

/* Every picture depends on the seed and its number alone. */
static int write_all(const mh_synth_pictures *request, written *all)
{
    uint64_t classes = request->count / FILES_OF_CLASS + 1;
    char name[64];
    int code = MH_CLI_OK;
    classes = classes > CLASSES_MOST ? CLASSES_MOST : classes;
    for (uint64_t i = 0; i < request->count && code == MH_CLI_OK; i++) {
        if (mh_cli_interrupted())
            return mh_cli_fail(MH_CLI_INTERRUPTED, WHERE, "remove the directory and run it again",
                               "interrupted after %" PRIu64 " pictures", i);
        (void)snprintf(name, sizeof name, "n%08" PRIu64 "_%" PRIu64 ".JPEG", i % classes, i);
        code = write_in_class(request, i % classes, name, i, USUAL, all);
    }
    int kinds = MH_HAVE_PNG ? ODD_KINDS : PNG_INSIDE;
    for (int kind = PROGRESSIVE; request->odd && kind < kinds && code == MH_CLI_OK; kind++) {
        (void)snprintf(name, sizeof name, "odd_%s.JPEG", odd_names[kind]);
        code = write_in_class(request, (uint64_t)kind % classes, name,
                              request->count + (uint64_t)kind, (odd_kind)kind, all);
    }
    return code;
}

int mh_synth_imagenet(const mh_synth_pictures *request)
{
    written all = {.hash = UINT64_C(0xcbf29ce484222325)};
    char bytes[MH_CLI_BYTES];
    if (mkdir(request->directory, 0777) < 0 && errno != EEXIST)
        return fail_file(request->directory);
    mh_cli_heed_signals();
    int code = write_all(request, &all);
    if (code != MH_CLI_OK)
        return code;
    if (request->json)
        (void)printf("{\"files\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"hash\": \"%016" PRIx64
                     "\"}\n",
                     all.files, all.bytes, all.hash);
    else
        (void)printf("%s: %" PRIu64 " pictures, %s, hash %016" PRIx64 "\n", request->directory,
                     all.files, mh_cli_bytes(bytes, all.bytes), all.hash);
    return MH_CLI_OK;
}

#else

int mh_synth_imagenet(const mh_synth_pictures *request)
{
    (void)request;
    return mh_cli_fail(MH_CLI_FAILED, WHERE, "build it with libjpeg-turbo",
                       "this build has no JPEG codec");
}

#endif
