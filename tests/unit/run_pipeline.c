/* run_pipeline.c - a pipeline text over files, for tests that compare with Pillow
 * SPDX-License-Identifier: Apache-2.0
 *
 *     run_pipeline TEXT PROFILE KERNELS SEED EPOCH < JOBS
 *
 * PROFILE is exact or fast, KERNELS best or plain. A job is a line "POSITION FIELD PATH"; jobs of
 * one position that follow each other are fields of one sample. For each job one line goes out: "ok
 * DTYPE RAGGED SHAPE... BYTES" and that many bytes, or "STATUS MESSAGE". A text that is not
 * understood: exit code 2 and its message.
 */
#include "op/room.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

/* A block of exactly the file's size, so that a sanitizer sees a byte too far. */
static int read_file(const char *path, bytes *out)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    (void)fseek(file, 0, SEEK_END);
    out->size = (size_t)ftell(file);
    rewind(file);
    out->data = malloc(out->size ? out->size : 1);
    int sound = out->data && fread(out->data, 1, out->size, file) == out->size;
    (void)fclose(file);
    return sound;
}

static mh_status run(const mh_image_plan *plan, mh_image_room *room, mh_image_draws *draws,
                     bytes file, mh_error *err)
{
    mh_picture picture;
    mh_field field = {0};
    int64_t shape[MH_DIMS_MOST];
    mh_image_plan_field(plan, &field);
    mh_status status = mh_picture_describe(&picture, file.data, file.size, 1, err);
    if (status == MH_OK)
        status = mh_image_plan_shape(plan, &picture, shape, err);
    if (status != MH_OK)
        return status;
    uint64_t size = field.dtype.bits / 8;
    for (uint32_t i = 0; i < field.dims; i++)
        size *= (uint64_t)shape[i];
    uint8_t *into = malloc(size);
    mh_image_job job = {file.data, file.size, draws, into, size};
    status = into ? mh_image_run(plan, room, &job, err) : MH_ERR_NOMEM;
    if (status == MH_OK) {
        (void)printf("ok %d.%d %d", field.dtype.code, field.dtype.bits, field.ragged);
        for (uint32_t i = 0; i < field.dims; i++)
            (void)printf(" %lld", (long long)shape[i]);
        (void)printf(" %llu\n", (unsigned long long)size);
        (void)fwrite(into, 1, size, stdout);
    }
    free(into);
    return status;
}

static void run_jobs(const mh_image_pipeline *pipeline, mh_image_room *room, uint64_t seed,
                     uint64_t epoch)
{
    static char line[5000], name[64], path[4096];
    mh_image_draws draws = {.position = UINT64_MAX};
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long position;
        bytes file = {0};
        mh_error err = {0};
        if (sscanf(line, "%llu %63s %4095[^\n]", &position, name, path) != 3)
            exit(2);
        if (draws.position != position)
            mh_image_draws_begin(&draws, seed, epoch, position);
        if (!read_file(path, &file))
            exit(2);
        mh_status status = run(mh_image_pipeline_plan(pipeline, name), room, &draws, file, &err);
        if (status != MH_OK)
            (void)printf("%s: %s\n", mh_status_name(status), err.message);
        free(file.data);
    }
}

int main(int argc, char **argv)
{
    mh_image_pipeline *pipeline = NULL;
    mh_image_room *room = NULL;
    mh_image_profile profile = MH_IMAGE_EXACT;
    mh_error err = {0};
    if (argc != 6)
        return 2;
    if (mh_image_profile_read(&profile, argv[2], &err) != MH_OK ||
        mh_image_pipeline_parse(&pipeline, argv[1], profile, &err) != MH_OK ||
        mh_image_room_new(&room, &err) != MH_OK) {
        (void)printf("%s\n", err.message);
        return 2;
    }
    if (strcmp(argv[3], "plain") == 0)
        mh_image_room_use(room, &mh_kernels_plain);
    run_jobs(pipeline, room, strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
    mh_image_room_free(room);
    mh_image_pipeline_free(pipeline);
    return 0;
}
