/* svg.c - writing SVG
 * SPDX-License-Identifier: Apache-2.0
 */
#include "report/svg.h"

#include "base/json.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static void put_number(const mh_svg *svg, double value)
{
    int64_t hundredths = isfinite(value) && fabs(value) < 1e12 ? llround(value * 100) : 0;
    int64_t size = hundredths < 0 ? -hundredths : hundredths;
    (void)fprintf(svg->file, "%s%" PRId64, hundredths < 0 ? "-" : "", size / 100);
    if (size % 100)
        (void)fprintf(svg->file, ".%02d", (int)(size % 100));
}

static void put_attribute(const mh_svg *svg, const char *name, double value)
{
    (void)fprintf(svg->file, " %s=\"", name);
    put_number(svg, value);
    (void)fputc('"', svg->file);
}

/* Bytes that are no UTF-8, as a directory's name may hold, would make the file no XML. */
static void put_text(const mh_svg *svg, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        size_t length = c < 0x80 ? 1 : mh_json_utf8_length(text, strlen(text));
        if (length > 1) {
            (void)fwrite(text, 1, length, svg->file);
            text += length - 1;
            continue;
        }
        if (c == '<')
            (void)fputs("&lt;", svg->file);
        else if (c == '>')
            (void)fputs("&gt;", svg->file);
        else if (c == '&')
            (void)fputs("&amp;", svg->file);
        else if (c == '"')
            (void)fputs("&quot;", svg->file);
        else if (c < 0x20 || length == 0)
            (void)fputc('?', svg->file);
        else
            (void)fputc(c, svg->file);
    }
}

void mh_svg_begin(mh_svg *svg, double width, double height, const char *title)
{
    (void)fputs("<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" "
                "font-family=\"Inter, 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', "
                "sans-serif\"",
                svg->file);
    put_attribute(svg, "width", width);
    put_attribute(svg, "height", height);
    (void)fputs(" viewBox=\"0 0 ", svg->file);
    put_number(svg, width);
    (void)fputc(' ', svg->file);
    put_number(svg, height);
    (void)fputs("\">\n<title>", svg->file);
    put_text(svg, title);
    (void)fputs("</title>\n", svg->file);
    mh_svg_rect(svg, 0, 0, width, height, "#ffffff", 1);
}

void mh_svg_end(mh_svg *svg)
{
    (void)fputs("</svg>\n", svg->file);
}

static void rect_open(mh_svg *svg, double x, double y, double width, double height,
                      const char *colour)
{
    (void)fputs("<rect", svg->file);
    put_attribute(svg, "x", x);
    put_attribute(svg, "y", y);
    put_attribute(svg, "width", width);
    put_attribute(svg, "height", height);
    (void)fprintf(svg->file, " fill=\"%s\"", colour);
}

void mh_svg_rect(mh_svg *svg, double x, double y, double width, double height, const char *colour,
                 double opacity)
{
    rect_open(svg, x, y, width, height, colour);
    if (opacity < 0.995)
        put_attribute(svg, "fill-opacity", opacity);
    (void)fputs("/>\n", svg->file);
}

void mh_svg_box(mh_svg *svg, double x, double y, double width, double height, const char *fill,
                const char *edge)
{
    rect_open(svg, x, y, width, height, fill);
    (void)fprintf(svg->file, " rx=\"8\" stroke=\"%s\"/>\n", edge);
}

void mh_svg_line(mh_svg *svg, double x1, double y1, double x2, double y2, const char *colour,
                 double width)
{
    (void)fputs("<line", svg->file);
    put_attribute(svg, "x1", x1);
    put_attribute(svg, "y1", y1);
    put_attribute(svg, "x2", x2);
    put_attribute(svg, "y2", y2);
    (void)fprintf(svg->file, " stroke=\"%s\"", colour);
    put_attribute(svg, "stroke-width", width);
    (void)fputs("/>\n", svg->file);
}

void mh_svg_text(mh_svg *svg, double x, double y, double size, mh_anchor anchor, bool bold,
                 const char *colour, const char *text)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    (void)fputs("<text", svg->file);
    put_attribute(svg, "x", x);
    put_attribute(svg, "y", y);
    put_attribute(svg, "font-size", size);
    (void)fprintf(svg->file, " text-anchor=\"%s\" fill=\"%s\"%s>", anchors[anchor], colour,
                  bold ? " font-weight=\"600\"" : "");
    put_text(svg, text);
    (void)fputs("</text>\n", svg->file);
}

void mh_svg_path_begin(mh_svg *svg)
{
    (void)fputs("<path d=\"", svg->file);
}

void mh_svg_path_to(mh_svg *svg, bool first, double x, double y)
{
    (void)fputc(first ? 'M' : 'L', svg->file);
    put_number(svg, x);
    (void)fputc(' ', svg->file);
    put_number(svg, y);
}

void mh_svg_path_end(mh_svg *svg, const char *stroke, const char *fill, double opacity)
{
    (void)fprintf(svg->file, "\" stroke=\"%s\" fill=\"%s\" stroke-width=\"1.5\"", stroke, fill);
    if (opacity < 0.995)
        put_attribute(svg, "fill-opacity", opacity);
    (void)fputs("/>\n", svg->file);
}
