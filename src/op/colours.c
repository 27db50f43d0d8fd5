/* colours.c - brightness, contrast, saturation and hue of pixels in memory, as Pillow changes them
 * SPDX-License-Identifier: Apache-2.0
 *
 * The first three mix the picture with a dull one: black, its mean grey, or itself without colour
 * (ImageEnhance). Hue turns the circle of colours in Pillow's HSV of bytes. The arithmetic is in
 * single precision where Pillow's is.
 */
#include "op/colours.h"

#include <math.h>

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE };

static uint8_t clipped(int value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static uint8_t grey(const uint8_t *pixel)
{
    return (uint8_t)((pixel[0] * 19595U + pixel[1] * 38470U + pixel[2] * 7471U + 0x8000) >> 16);
}

/* Image.blend for one byte. */
static uint8_t mixed(uint8_t dull, uint8_t bright, float share)
{
    float value = (float)(int)dull + share * (float)((int)bright - (int)dull);
    return value <= 0.0F ? 0 : value >= 255.0F ? 255 : (uint8_t)value;
}

static void mix_with(uint8_t *pixels, uint64_t count, uint8_t dull, float share)
{
    uint8_t table[256];
    for (unsigned byte = 0; byte < 256; byte++)
        table[byte] = mixed(dull, (uint8_t)byte, share);
    for (uint64_t i = 0; i < 3 * count; i++)
        pixels[i] = table[pixels[i]];
}

static uint8_t mean_grey(const uint8_t *pixels, uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += grey(pixels + 3 * i);
    return (uint8_t)((double)sum / (double)count + 0.5);
}

static void saturate(uint8_t *pixels, uint64_t count, float share)
{
    for (uint64_t i = 0; i < count; i++, pixels += 3) {
        uint8_t dull = grey(pixels);
        for (int channel = 0; channel < 3; channel++)
            pixels[channel] = mixed(dull, pixels[channel], share);
    }
}

typedef struct hsv {
    uint8_t hue, saturation, value;
} hsv;

static hsv to_hsv(const uint8_t *pixel)
{
    uint8_t r = pixel[0], g = pixel[1], b = pixel[2];
    uint8_t most = r > g ? (r > b ? r : b) : (g > b ? g : b);
    uint8_t least = r < g ? (r < b ? r : b) : (g < b ? g : b);
    if (most == least)
        return (hsv){0, 0, most};
    float range = (float)(most - least), saturation = range / (float)most, hue;
    float red = (float)(most - r) / range, green = (float)(most - g) / range;
    float blue = (float)(most - b) / range;
    if (r == most)
        hue = blue - green;
    else if (g == most)
        hue = (float)(2.0 + red - blue);
    else
        hue = (float)(4.0 + green - red);
    hue = (float)fmod(hue / 6.0 + 1.0, 1.0);
    return (hsv){clipped((int)(hue * 255.0)), clipped((int)(saturation * 255.0)), most};
}

static void from_hsv(uint8_t *out, hsv colour)
{
    uint8_t v = colour.value;
    if (colour.saturation == 0) {
        out[0] = out[1] = out[2] = v;
        return;
    }
    int sector = (int)floor((float)colour.hue * 6.0 / 255.0);
    float rest = (float)((float)colour.hue * 6.0 / 255.0 - (float)sector);
    float saturation = (float)(colour.saturation / 255.0);
    uint8_t p = clipped((int)round((float)v * (1.0 - saturation)));
    uint8_t q = clipped((int)round((float)v * (1.0 - saturation * rest)));
    uint8_t t = clipped((int)round((float)v * (1.0 - saturation * (1.0 - rest))));
    const uint8_t sectors[6][3] = {{v, t, p}, {q, v, p}, {p, v, t},
                                   {p, q, v}, {t, p, v}, {v, p, q}};
    for (int channel = 0; channel < 3; channel++)
        out[channel] = sectors[sector % 6][channel];
}

static void turn_hue(uint8_t *pixels, uint64_t count, double turn)
{
    uint8_t shift = (uint8_t)(int)(turn * 255);
    for (uint64_t i = 0; i < count; i++, pixels += 3) {
        hsv colour = to_hsv(pixels);
        colour.hue = (uint8_t)(colour.hue + shift);
        from_hsv(pixels, colour);
    }
}

void mh_colours_change(const mh_colours *colours, uint8_t *pixels, uint64_t count)
{
    for (int i = 0; i < 4; i++) {
        uint8_t kind = colours->order[i];
        double factor = colours->factors[kind];
        if (!colours->used[kind])
            continue;
        if (kind == BRIGHTNESS)
            mix_with(pixels, count, 0, (float)factor);
        else if (kind == CONTRAST)
            mix_with(pixels, count, mean_grey(pixels, count), (float)factor);
        else if (kind == SATURATION)
            saturate(pixels, count, (float)factor);
        else
            turn_hue(pixels, count, factor);
    }
}
