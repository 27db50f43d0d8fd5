/* synth_scene.c - pictures that compress like photos
 * SPDX-License-Identifier: Apache-2.0
 *
 * The dead leaves model: discs of many sizes, each hiding what lies under it, have the edges and
 * the spectrum of photos. Value noise of seven octaves gives surfaces their grain.
 */
#include "synth.h"

#include <math.h>
#include <stdlib.h>

#define OCTAVES 7

typedef struct scene {
    float *rgb;
    int width, height;
    uint64_t seed, draws;
} scene;

static double drawn(scene *self)
{
    return (double)(mh_synth_drawn(self->seed, self->draws++) >> 11) * 0x1p-53;
}

static int within(double value, int most)
{
    return value < 0 ? 0 : value > most ? most : (int)value;
}

/* An ellipse of one colour that changes evenly across it. */
static void add_leaf(scene *self)
{
    double radius = 4 / sqrt(drawn(self) + 0.0004);
    double x0 = drawn(self) * self->width, y0 = drawn(self) * self->height;
    double flat = 0.4 + 0.6 * drawn(self), turn = drawn(self) * 3.14159265;
    double bright = drawn(self) * 255, along = cos(turn), across = sin(turn);
    float colour[3];
    for (int c = 0; c < 3; c++)
        colour[c] = (float)(bright + (drawn(self) - 0.5) * 90);
    double slope_x = (drawn(self) - 0.5) * 60 / radius, slope_y = (drawn(self) - 0.5) * 60 / radius;
    int top = within(y0 - radius, self->height - 1), end = within(y0 + radius, self->height - 1);
    int left = within(x0 - radius, self->width - 1), right = within(x0 + radius, self->width - 1);
    for (int y = top; y <= end; y++)
        for (int x = left; x <= right; x++) {
            double dx = x - x0, dy = y - y0;
            double a = dx * along + dy * across, b = (dy * along - dx * across) / flat;
            if (a * a + b * b > radius * radius)
                continue;
            float *pixel = self->rgb + 3 * ((size_t)y * (size_t)self->width + (size_t)x);
            for (int c = 0; c < 3; c++)
                pixel[c] = colour[c] + (float)(slope_x * dx + slope_y * dy);
        }
}

/* Smooth between random values on a grid of `cell` pixels. */
static bool add_noise(scene *self, int cell, float height)
{
    int columns = self->width / cell + 2, rows = self->height / cell + 2;
    float *grid = malloc((size_t)columns * (size_t)rows * sizeof *grid);
    if (!grid)
        return false;
    for (int i = 0; i < columns * rows; i++)
        grid[i] = (float)(drawn(self) * 2 - 1) * height;
    for (int y = 0; y < self->height; y++) {
        float v = (float)(y % cell) / (float)cell;
        v = v * v * (3 - 2 * v);
        const float *upper = grid + (size_t)(y / cell) * (size_t)columns, *lower = upper + columns;
        float *pixel = self->rgb + 3 * (size_t)y * (size_t)self->width;
        for (int x = 0; x < self->width; x++, pixel += 3) {
            float u = (float)(x % cell) / (float)cell;
            u = u * u * (3 - 2 * u);
            int at = x / cell;
            float above = upper[at] + (upper[at + 1] - upper[at]) * u;
            float below = lower[at] + (lower[at + 1] - lower[at]) * u;
            float noise = above + (below - above) * v;
            pixel[0] += noise;
            pixel[1] += noise;
            pixel[2] += noise;
        }
    }
    free(grid);
    return true;
}

bool mh_synth_scene(uint8_t *rgb, const mh_scene *about, uint64_t seed)
{
    static const int cells[OCTAVES] = {64, 32, 16, 8, 4, 2, 1};
    static const float heights[OCTAVES] = {18, 14, 11, 8, 6, 5, 6};
    size_t values = (size_t)about->width * (size_t)about->height * 3;
    scene self = {.rgb = calloc(values, sizeof *self.rgb),
                  .width = about->width,
                  .height = about->height,
                  .seed = seed};
    bool made = self.rgb != NULL;
    for (int i = 0; made && i < about->leaves; i++)
        add_leaf(&self);
    for (int i = 0; made && i < OCTAVES; i++)
        made = add_noise(&self, cells[i], about->grain * heights[i]);
    for (size_t i = 0; made && i < values; i++)
        rgb[i] = (uint8_t)(self.rgb[i] < 0 ? 0 : self.rgb[i] > 255 ? 255 : self.rgb[i]);
    free(self.rgb);
    return made;
}
