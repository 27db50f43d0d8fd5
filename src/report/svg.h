/* svg.h - writing SVG: shapes and texts, one call each
 * SPDX-License-Identifier: Apache-2.0
 *
 * Numbers have two decimals and a point in every locale; texts are escaped. Failures of the file
 * are asked for by its owner in the end. One thread at a time.
 */
#ifndef MH_REPORT_SVG_H
#define MH_REPORT_SVG_H

#include <millhead/error.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct mh_svg {
    FILE *file;
} mh_svg;

typedef enum mh_anchor { MH_ANCHOR_START, MH_ANCHOR_MIDDLE, MH_ANCHOR_END } mh_anchor;

/* White paper of this size; `title` is what a screen reader says. */
void mh_svg_begin(mh_svg *svg, double width, double height, const char *title);
void mh_svg_end(mh_svg *svg);

void mh_svg_rect(mh_svg *svg, double x, double y, double width, double height, const char *colour,
                 double opacity);
/* With round corners and a thin edge. */
void mh_svg_box(mh_svg *svg, double x, double y, double width, double height, const char *fill,
                const char *edge);
void mh_svg_line(mh_svg *svg, double x1, double y1, double x2, double y2, const char *colour,
                 double width);
void mh_svg_text(mh_svg *svg, double x, double y, double size, mh_anchor anchor, bool bold,
                 const char *colour, const char *text);

/* A line through points, added one by one. */
void mh_svg_path_begin(mh_svg *svg);
void mh_svg_path_to(mh_svg *svg, bool first, double x, double y);
void mh_svg_path_end(mh_svg *svg, const char *stroke, const char *fill, double opacity);

#endif
