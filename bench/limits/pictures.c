/* pictures.c - the limit of JPEG loading: decode and resize in a bare loop, no engine around it
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: pictures LIST THREADS SECONDS [SCALED]
 *
 * The files that LIST names are in memory. For each in turn: a random resized crop is drawn
 * (torchvision's distribution), only its part of the picture is decoded (crop, skip, stop early;
 * with SCALED at a half, a quarter or an eighth where that is still SCALED times the result), and
 * resized to 224 x 224 with a filter as wide as the scale asks for, rows first. No draw is shared
 * between threads, nothing is allocated in the loop. Prints pictures per second and per CPU second
 * as JSON.
 */
#include "../clock.h"

#include <immintrin.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

enum { SIDE = 224, WIDTH_MOST = 4096, ROWS_MOST = 4096, TAPS_MOST = 64, BATCH = 64, ONE = 1 << 14 };

typedef struct picture {
    uint8_t *bytes;
    size_t size;
} picture;

typedef struct box {
    int x, y, width, height;
} box;

/* Which source rows or columns a result is made of, and how much of each. */
typedef struct taps {
    int begin[SIDE], count[SIDE];
    int16_t weight[SIDE][TAPS_MOST];
} taps;

typedef struct worker {
    pthread_t thread;
    uint64_t state; /* of its random numbers */
    uint8_t *pixels, *row, *out;
    taps down, across;
    long done;
} worker;

static picture *pictures;
static long picture_count;
static atomic_long next_picture;
static double scaled; /* 0: not */
static double end_s;

static double drawn(worker *self)
{
    uint64_t x = self->state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    self->state = x;
    return (double)(x >> 11) * 0x1p-53;
}

static box draw_box(worker *self, int width, int height)
{
    const double low = log(3.0 / 4), high = log(4.0 / 3);
    for (int attempt = 0; attempt < 10; attempt++) {
        double area = (double)width * height * (0.08 + 0.92 * drawn(self));
        double ratio = exp(low + (high - low) * drawn(self));
        int w = (int)lround(sqrt(area * ratio)), h = (int)lround(sqrt(area / ratio));
        if (w > 0 && w <= width && h > 0 && h <= height)
            return (box){(int)(drawn(self) * (width - w + 1)),
                         (int)(drawn(self) * (height - h + 1)), w, h};
    }
    int side = width < height ? width : height;
    return (box){(width - side) / 2, (height - side) / 2, side, side};
}

/* A triangle as wide as the scale, and never narrower than two pixels. */
static void make_taps(taps *out, double offset, double length, int source)
{
    double scale = length / SIDE, support = scale > 1 ? scale : 1;
    for (int i = 0; i < SIDE; i++) {
        double centre = offset + (i + 0.5) * scale, weights[TAPS_MOST], sum = 0;
        int begin = (int)(centre - support + 0.5), end = (int)(centre + support + 0.5);
        begin = begin < 0 ? 0 : begin;
        end = end > source ? source : end;
        int count = end - begin < TAPS_MOST ? end - begin : TAPS_MOST, most = 0, whole = 0;
        for (int k = 0; k < count; k++) {
            double away = fabs((begin + k - centre + 0.5) / support);
            weights[k] = away < 1 ? 1 - away : 0;
            sum += weights[k];
        }
        for (int k = 0; k < count; k++) {
            out->weight[i][k] = (int16_t)lround(weights[k] / sum * ONE);
            whole += out->weight[i][k];
            most = out->weight[i][k] > out->weight[i][most] ? k : most;
        }
        out->weight[i][most] = (int16_t)(out->weight[i][most] + ONE - whole);
        out->weight[i][count < TAPS_MOST ? count : TAPS_MOST - 1] = 0; /* read in pairs */
        out->begin[i] = begin;
        out->count[i] = count;
    }
}

/* One row of the result's height, `length` values wide. */
static void resize_down(const uint8_t *from, size_t stride, const int16_t *weight, int count,
                        uint8_t *out, int length)
{
    const __m256i half = _mm256_set1_epi32(ONE / 2);
    for (int i = 0; i < length; i += 16) { /* what is behind the end is padding */
        __m256i low = half, high = half;
        for (int k = 0; k < count; k += 2) {
            const uint8_t *a = from + (size_t)k * stride + i;
            const uint8_t *b = k + 1 < count ? a + stride : a;
            int second = k + 1 < count ? weight[k + 1] : 0;
            __m256i pair = _mm256_set1_epi32((int)(((unsigned)second << 16) | (uint16_t)weight[k]));
            __m128i left = _mm_loadu_si128((const __m128i *)(const void *)a);
            __m128i right = _mm_loadu_si128((const __m128i *)(const void *)b);
            __m256i first = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(left, right));
            __m256i last = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(left, right));
            low = _mm256_add_epi32(low, _mm256_madd_epi16(first, pair));
            high = _mm256_add_epi32(high, _mm256_madd_epi16(last, pair));
        }
        __m256i words = _mm256_packs_epi32(_mm256_srai_epi32(low, 14), _mm256_srai_epi32(high, 14));
        words = _mm256_permute4x64_epi64(words, 0xD8);
        __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0xD8);
        _mm_storeu_si128((__m128i *)(void *)(out + i), _mm256_castsi256_si128(bytes));
    }
}

/* RGB pixels of one row, two source pixels at a time. */
static void resize_across(const uint8_t *from, const taps *taps, uint8_t *out, int mirrored)
{
    const __m128i pairs = _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    for (int x = 0; x < SIDE; x++) {
        const uint8_t *pixel = from + 3 * taps->begin[x];
        __m128i sum = _mm_set1_epi32(ONE / 2);
        for (int k = 0; k < taps->count[x]; k += 2) {
            int32_t weights;
            memcpy(&weights, &taps->weight[x][k], sizeof weights);
            __m128i two = _mm_loadl_epi64((const __m128i *)(const void *)(pixel + 3 * k));
            sum = _mm_add_epi32(
                sum, _mm_madd_epi16(_mm_shuffle_epi8(two, pairs), _mm_set1_epi32(weights)));
        }
        sum = _mm_packs_epi32(_mm_srai_epi32(sum, 14), sum);
        int rgb = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
        memcpy(out + 3 * (mirrored ? SIDE - 1 - x : x), &rgb, 3);
    }
}

static int scale_for(box wanted)
{
    int eighths = 8;
    while (scaled > 0 && eighths > 1 && wanted.width * eighths / 16.0 >= scaled * SIDE &&
           wanted.height * eighths / 16.0 >= scaled * SIDE)
        eighths /= 2;
    return eighths;
}

static void load(worker *self, struct jpeg_decompress_struct *jpeg, const picture *from,
                 uint8_t *out)
{
    jpeg_mem_src(jpeg, from->bytes, from->size);
    (void)jpeg_read_header(jpeg, TRUE);
    jpeg->out_color_space = JCS_EXT_RGB;
    box wanted = draw_box(self, (int)jpeg->image_width, (int)jpeg->image_height);
    int eighths = scale_for(wanted), mirrored = drawn(self) < 0.5;
    double scale = eighths / 8.0;
    jpeg->scale_num = (unsigned)eighths;
    jpeg->scale_denom = 8;
    (void)jpeg_start_decompress(jpeg);
    double left = wanted.x * scale, top = wanted.y * scale;
    int x0 = (int)left, y0 = (int)top;
    int x1 = (int)fmin(ceil(left + wanted.width * scale), jpeg->output_width);
    int y1 = (int)fmin(ceil(top + wanted.height * scale), jpeg->output_height);
    JDIMENSION begin = (JDIMENSION)x0, width = (JDIMENSION)(x1 - x0);
    jpeg_crop_scanline(jpeg, &begin, &width);
    if (y0)
        (void)jpeg_skip_scanlines(jpeg, (JDIMENSION)y0);
    size_t stride = (size_t)jpeg->output_width * 3;
    for (int y = 0; y < y1 - y0;) {
        JSAMPROW rows[4];
        for (int i = 0; i < 4; i++)
            rows[i] = self->pixels + (size_t)(y + i) * stride;
        y += (int)jpeg_read_scanlines(jpeg, rows, (JDIMENSION)(y1 - y0 - y < 4 ? y1 - y0 - y : 4));
    }
    jpeg_abort_decompress(jpeg);
    make_taps(&self->down, top - y0, wanted.height * scale, y1 - y0);
    make_taps(&self->across, left - x0, wanted.width * scale, x1 - x0);
    const uint8_t *first = self->pixels + 3 * (size_t)(x0 - (int)begin);
    for (int y = 0; y < SIDE; y++) {
        resize_down(first + (size_t)self->down.begin[y] * stride, stride, self->down.weight[y],
                    self->down.count[y], self->row, 3 * (x1 - x0));
        resize_across(self->row, &self->across, out + (size_t)y * SIDE * 3, mirrored);
    }
}

static void *work(void *argument)
{
    worker *self = argument;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    while (now_s() < end_s) {
        long number = atomic_fetch_add(&next_picture, 1);
        load(self, &jpeg, &pictures[number % picture_count],
             self->out + (size_t)(number % BATCH) * SIDE * SIDE * 3);
        self->done++;
    }
    jpeg_destroy_decompress(&jpeg);
    return NULL;
}

static int read_list(const char *path)
{
    char name[4096];
    FILE *list = fopen(path, "r");
    for (long room = 0; list && fgets(name, sizeof name, list); picture_count++) {
        name[strcspn(name, "\n")] = '\0';
        if (picture_count == room)
            pictures =
                realloc(pictures, (size_t)(room = room ? 2 * room : 1024) * sizeof *pictures);
        FILE *file = fopen(name, "rb");
        if (!pictures || !file || fseek(file, 0, SEEK_END) != 0)
            return 0;
        picture *made = &pictures[picture_count];
        made->size = (size_t)ftell(file);
        made->bytes = malloc(made->size);
        rewind(file);
        if (!made->bytes || fread(made->bytes, 1, made->size, file) != made->size)
            return 0;
        (void)fclose(file);
    }
    return picture_count > 0;
}

int main(int argc, char **argv)
{
    int threads = argc > 3 ? atoi(argv[2]) : 0;
    worker *workers = calloc((size_t)(threads > 0 ? threads : 1), sizeof *workers);
    scaled = argc > 4 ? atof(argv[4]) : 0;
    if (threads < 1 || !workers || !read_list(argv[1])) {
        (void)fprintf(stderr, "usage: pictures LIST THREADS SECONDS [SCALED]\n");
        return 2;
    }
    for (int i = 0; i < threads; i++) { /* touched before the clock starts */
        size_t sizes[] = {(size_t)WIDTH_MOST * ROWS_MOST * 3 / 2, WIDTH_MOST * 3 + 64,
                          (size_t)BATCH * SIDE * SIDE * 3 + 64};
        uint8_t **places[] = {&workers[i].pixels, &workers[i].row, &workers[i].out};
        for (int k = 0; k < 3; k++) {
            *places[k] = malloc(sizes[k]);
            if (!*places[k])
                return 1;
            memset(*places[k], 1, sizes[k]);
        }
        workers[i].state = UINT64_C(88172645463325252) + (uint64_t)i * 7919;
    }
    double began = now_s(), cpu = cpu_s();
    long done = 0;
    end_s = began + atof(argv[3]);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 1;
    for (int i = 0; i < threads; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        done += workers[i].done;
    }
    double took = now_s() - began;
    (void)printf("{\"samples\": %ld, \"seconds\": %.6f, \"cpu_s\": %.6f}\n", done, took,
                 cpu_s() - cpu);
    return 0;
}
