/* synth.h - what the files of millhead synth share
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_CLI_SYNTH_H
#define MILLHEAD_CLI_SYNTH_H

#include <stdbool.h>
#include <stdint.h>

/* splitmix64: value number `at` of the stream `seed`. */
static inline uint64_t mh_synth_drawn(uint64_t seed, uint64_t at)
{
    uint64_t bits = seed + (at + 1) * UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

/* What a scene is made of. */
typedef struct mh_scene {
    int width, height;
    int leaves;  /* shapes that hide one another */
    float grain; /* of the noise on them */
} mh_scene;

/* A picture that compresses like a photo: leaves that hide one another, and noise of all sizes. RGB
 * into `rgb`, which has width * height * 3 bytes. False: no memory. */
bool mh_synth_scene(uint8_t *rgb, const mh_scene *about, uint64_t seed);

/* What is to be written. */
typedef struct mh_synth_pictures {
    const char *directory;
    uint64_t count, seed;
    bool photos; /* of two megapixels, instead of pictures like ImageNet's */
    bool odd;    /* one of each unusual kind more */
    bool json;
} mh_synth_pictures;

/* Writes pictures into class folders, and says what was written. An exit code of the command. */
int mh_synth_imagenet(const mh_synth_pictures *request);

/* Writes `count` tokens of documents as directory/tokens.bin and tokens.idx. Prints what was
 * written. An exit code of the command. */
int mh_synth_tokens(const char *directory, uint64_t count, uint64_t seed, bool json);

#endif
