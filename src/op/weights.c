/* weights.c - along one side: which pixels a result is made of, and how much of each
 * SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic is Pillow's, step by step in double precision: a weight that differed in its last
 * bit would now and then change a pixel.
 */
#include "op/weights.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

static double box(double x)
{
    return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
}

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double hamming(double x)
{
    x = fabs(x);
    if (x == 0.0)
        return 1.0;
    if (x >= 1.0)
        return 0.0;
    x = x * PI;
    return sin(x) / x * ((double)0.54F + (double)0.46F * cos(x)); /* Pillow has single ones */
}

static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

static double sinc(double x)
{
    if (x == 0.0)
        return 1.0;
    x = x * PI;
    return sin(x) / x;
}

static double lanczos(double x)
{
    return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
}

static const struct {
    double (*at)(double x);
    double reach;
} filters[] = {
    [MH_FILTER_BILINEAR] = {bilinear, 1.0}, [MH_FILTER_BICUBIC] = {bicubic, 2.0},
    [MH_FILTER_LANCZOS] = {lanczos, 3.0},   [MH_FILTER_BOX] = {box, 0.5},
    [MH_FILTER_HAMMING] = {hamming, 1.0},   [MH_FILTER_NEAREST] = {NULL, 0.0},
};

/* --- memory --- */

/* One block for all lists; each begins at a multiple of 64 bytes. */
static mh_status reserve(mh_weights *weights, uint32_t count, uint32_t stride, mh_error *err)
{
    uint64_t list = (count * UINT64_C(4) + 63) / 64 * 64;
    uint64_t table = ((uint64_t)count * stride * 4 + 63) / 64 * 64;
    uint64_t room = stride * UINT64_C(8);
    uint8_t *at = mh_scratch_get(&weights->memory, 2 * list + 2 * table + room, err);
    if (!at)
        return MH_ERR_NOMEM;
    weights->count = count;
    weights->stride = stride;
    weights->starts = (uint32_t *)(void *)at;
    weights->lengths = (uint32_t *)(void *)(at + list);
    weights->values = (int32_t *)(void *)(at + 2 * list);
    weights->pairs = (uint32_t *)(void *)(at + 2 * list + table);
    weights->room = (double *)(void *)(at + 2 * list + 2 * table);
    return MH_OK;
}

void mh_weights_deinit(mh_weights *weights)
{
    mh_scratch_free(&weights->memory);
}

/* --- blending --- */

/* Weights as kernels that multiply pairs of 16-bit numbers want them: for each two pixels a word of
 * both low parts and one of both high parts. */
static void pair_up(mh_weights *weights, uint32_t at)
{
    const int32_t *values = weights->values + (size_t)at * weights->stride;
    uint32_t *pairs = weights->pairs + (size_t)at * weights->stride;
    const uint32_t low = (UINT32_C(1) << MH_WEIGHT_LOW_BITS) - 1;
    for (uint32_t i = 0; i < weights->stride; i += 2) {
        uint32_t one = (uint32_t)values[i], other = (uint32_t)values[i + 1];
        uint32_t one_high = (uint32_t)(values[i] >> MH_WEIGHT_LOW_BITS);
        uint32_t other_high = (uint32_t)(values[i + 1] >> MH_WEIGHT_LOW_BITS);
        pairs[i] = (one & low) | (other & low) << 16;
        pairs[i + 1] = (one_high & 0xffff) | other_high << 16;
    }
}

static int32_t rounded(double weight)
{
    double scaled = weight * (1 << MH_WEIGHT_BITS);
    return (int32_t)(weight < 0 ? -0.5 + scaled : 0.5 + scaled);
}

/* Weights of result number `result`, in place `at` of the lists. */
static void blend_one(mh_weights *weights, const mh_side *side, uint32_t result, uint32_t at)
{
    double *room = weights->room;
    double scale = (side->to - side->from) / side->out;
    double wide = scale < 1.0 ? 1.0 : scale, reach = filters[side->filter].reach * wide;
    double centre = side->from + (result + 0.5) * scale, per_pixel = 1.0 / wide, sum = 0.0;
    int32_t first = (int32_t)(centre - reach + 0.5), end = (int32_t)(centre + reach + 0.5);
    first = first < 0 ? 0 : first;
    end = end > (int32_t)side->in ? (int32_t)side->in : end;
    uint32_t length = (uint32_t)(end - first);
    int32_t *values = weights->values + (size_t)at * weights->stride;
    for (uint32_t i = 0; i < length; i++) {
        room[i] = filters[side->filter].at(((double)i + first - centre + 0.5) * per_pixel);
        sum += room[i];
    }
    for (uint32_t i = 0; i < length; i++)
        values[i] = rounded(sum != 0.0 ? room[i] / sum : room[i]);
    for (uint32_t i = length; i < weights->stride; i++)
        values[i] = 0;
    weights->starts[at] = (uint32_t)first;
    weights->lengths[at] = length;
    pair_up(weights, at);
}

static mh_status blend(mh_weights *weights, const mh_side *side, mh_error *err)
{
    double scale = (side->to - side->from) / side->out;
    double reach = filters[side->filter].reach * (scale < 1.0 ? 1.0 : scale);
    uint32_t most = (uint32_t)ceil(reach) * 2 + 1, stride = most < 8 ? 8 : (most + 3) / 4 * 4;
    MH_TRY(reserve(weights, side->count, stride, err));
    for (uint32_t i = 0; i < side->count; i++)
        blend_one(weights, side, side->first + (side->flip ? side->count - 1 - i : i), i);
    return MH_OK;
}

/* --- picking --- */

/* Which pixel is nearest to each result: Pillow adds up steps of the scale from the first result
 * on, so this does. */
static void pick(mh_weights *weights, const mh_side *side)
{
    double scale = (side->to - side->from) / side->out, at = side->from + scale * 0.5;
    for (uint32_t result = 0; result < side->first + side->count; result++, at += scale) {
        if (result < side->first)
            continue;
        uint32_t pixel = (uint32_t)at, place = result - side->first;
        weights->starts[side->flip ? side->count - 1 - place : place] =
            pixel < side->in ? pixel : side->in - 1;
    }
}

/* The range of pixels that are needed; starts then count from it. */
static void settle(mh_weights *weights)
{
    uint32_t first = UINT32_MAX, end = 0;
    weights->longest = 1;
    for (uint32_t i = 0; i < weights->count; i++) {
        uint32_t length = weights->kind == MH_WEIGHTS_BLEND ? weights->lengths[i] : 1;
        weights->longest = length > weights->longest ? length : weights->longest;
        first = weights->starts[i] < first ? weights->starts[i] : first;
        end = weights->starts[i] + length > end ? weights->starts[i] + length : end;
    }
    for (uint32_t i = 0; i < weights->count; i++)
        weights->starts[i] -= first;
    weights->first = first;
    weights->end = end;
}

mh_status mh_weights_make(mh_weights *weights, const mh_side *side, mh_error *err)
{
    bool same = side->from == 0.0 && side->to == side->in && side->out == side->in;
    if (same && !side->flip) {
        weights->kind = MH_WEIGHTS_SAME;
        weights->count = side->count;
        weights->first = side->first;
        weights->end = side->first + side->count;
        return MH_OK;
    }
    if (same || side->filter == MH_FILTER_NEAREST) {
        weights->kind = MH_WEIGHTS_PICK;
        MH_TRY(reserve(weights, side->count, 2, err));
        pick(weights, side);
    } else {
        weights->kind = MH_WEIGHTS_BLEND;
        MH_TRY(blend(weights, side, err));
    }
    settle(weights);
    return MH_OK;
}
