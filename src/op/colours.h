/* colours.h - brightness, contrast, saturation and hue of pixels in memory, as Pillow changes them
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_OP_COLOURS_H
#define MH_OP_COLOURS_H

#include "op/step.h"

/* Changes `count` pixels of three bytes in place. */
void mh_colours_change(const mh_colours *colours, uint8_t *pixels, uint64_t count);

#endif
