/* xml.c - a scanner for the XML that S3 answers with
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/xml.h"

#include "base/text.h"

#include <stdint.h>

void mh_xml_init(mh_xml *xml, const char *data, size_t size)
{
    *xml = (mh_xml){.data = data, .size = size};
}

static mh_xml_kind give(mh_xml_token *token, mh_xml_kind kind, const char *text, size_t length)
{
    *token = (mh_xml_token){.kind = kind, .text = text, .length = length};
    return kind;
}

static mh_xml_kind fail(mh_xml *xml, mh_xml_token *token)
{
    xml->failed = true;
    return give(token, MH_XML_ERROR, xml->data, 0);
}

static bool begins(const mh_xml *xml, const char *with)
{
    size_t length = strlen(with);
    return xml->size - xml->at >= length && memcmp(xml->data + xml->at, with, length) == 0;
}

/* Moves behind the next `end`; false: there is none. */
static bool pass(mh_xml *xml, const char *end)
{
    size_t length = strlen(end);
    const char *found = memmem(xml->data + xml->at, xml->size - xml->at, end, length);
    if (found)
        xml->at = (size_t)(found - xml->data) + length;
    return found != NULL;
}

/* Moves behind the '>' of a tag, over attributes whose values may have one. */
static bool pass_tag(mh_xml *xml)
{
    for (char quote = 0; xml->at < xml->size; xml->at++) {
        char c = xml->data[xml->at];
        if (quote) {
            quote = c == quote ? 0 : quote;
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '>') {
            xml->at++;
            return true;
        }
    }
    return false;
}

static bool ends_name(char c)
{
    return c == '>' || c == '/' || c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static mh_xml_kind read_tag(mh_xml *xml, mh_xml_token *token)
{
    bool closing = begins(xml, "</");
    size_t from = xml->at + 1 + closing, end = from;
    while (end < xml->size && !ends_name(xml->data[end]))
        end++;
    xml->at = end;
    if (end == from || !pass_tag(xml))
        return fail(xml, token);
    const char *colon = memchr(xml->data + from, ':', end - from);
    if (colon)
        from = (size_t)(colon - xml->data) + 1;
    const char *name = xml->data + from;
    size_t length = end - from;
    if (!closing) {
        if (xml->depth == MH_XML_DEPTH || length == 0)
            return fail(xml, token);
        xml->names[xml->depth] = from;
        xml->lengths[xml->depth++] = length;
        xml->closes = xml->data[xml->at - 2] == '/';
        return give(token, MH_XML_OPEN, name, length);
    }
    if (xml->depth == 0 || xml->lengths[xml->depth - 1] != length ||
        memcmp(xml->data + xml->names[xml->depth - 1], name, length) != 0)
        return fail(xml, token);
    xml->depth--;
    return give(token, MH_XML_CLOSE, name, length);
}

mh_xml_kind mh_xml_next(mh_xml *xml, mh_xml_token *token)
{
    if (xml->failed)
        return fail(xml, token);
    if (xml->closes) {
        xml->closes = false;
        xml->depth--;
        return give(token, MH_XML_CLOSE, xml->data + xml->names[xml->depth],
                    xml->lengths[xml->depth]);
    }
    while (xml->at < xml->size) {
        const char *here = xml->data + xml->at;
        if (*here != '<') {
            const char *tag = memchr(here, '<', xml->size - xml->at);
            size_t length = tag ? (size_t)(tag - here) : xml->size - xml->at;
            xml->at += length;
            if (xml->depth)
                return give(token, MH_XML_TEXT, here, length);
        } else if (begins(xml, "<!--")) {
            if (!pass(xml, "-->"))
                return fail(xml, token);
        } else if (begins(xml, "<?")) {
            if (!pass(xml, "?>"))
                return fail(xml, token);
        } else if (begins(xml, "<!")) {
            if (xml->depth || !pass_tag(xml))
                return fail(xml, token);
        } else {
            return read_tag(xml, token);
        }
    }
    return xml->depth ? fail(xml, token) : give(token, MH_XML_END, xml->data, 0);
}

bool mh_xml_is(const mh_xml_token *token, const char *name)
{
    return token->length == strlen(name) && memcmp(token->text, name, token->length) == 0;
}

/* --- escapes --- */

static void put_utf8(mh_text *out, uint32_t code)
{
    char bytes[4];
    size_t count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = count; i > 1; i--, code >>= 6)
        bytes[i - 1] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)(lead[count] | code);
    mh_text_put_bytes(out, bytes, count);
}

/* "#38" or "#x26" */
static bool put_number(mh_text *out, const char *text, size_t length)
{
    unsigned base = length > 1 && text[1] == 'x' ? 16 : 10;
    uint32_t code = 0;
    size_t at = base == 16 ? 2 : 1;
    if (at == length)
        return false;
    for (; at < length; at++) {
        char c = text[at];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                                : 99;
        if (digit >= base || (code = code * base + digit) > 0x10ffff)
            return false;
    }
    if (code == 0 || (code >= 0xd800 && code < 0xe000))
        return false;
    put_utf8(out, code);
    return true;
}

static bool put_escape(mh_text *out, const char *text, size_t length)
{
    static const struct {
        const char *name, *means;
    } known[] = {{"lt", "<"}, {"gt", ">"}, {"amp", "&"}, {"quot", "\""}, {"apos", "'"}};
    if (length && text[0] == '#')
        return put_number(out, text, length);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == length && memcmp(known[i].name, text, length) == 0) {
            mh_text_put(out, known[i].means);
            return true;
        }
    return false;
}

bool mh_xml_text(const mh_xml_token *token, char *out, size_t room)
{
    mh_text text = mh_text_in(out, room);
    const char *at = token->text, *end = at + token->length;
    while (at < end && !text.cut) {
        if (*at == '&') {
            const char *stop = memchr(at, ';', (size_t)(end - at));
            if (!stop || !put_escape(&text, at + 1, (size_t)(stop - at - 1)))
                return false;
            at = stop + 1;
        } else {
            if (*at == '\0')
                return false;
            mh_text_put_bytes(&text, at++, 1);
        }
    }
    return !text.cut;
}

bool mh_xml_find(const char *data, size_t size, const char *name, char *out, size_t room)
{
    mh_xml xml;
    mh_xml_token token;
    mh_xml_init(&xml, data, size);
    while (mh_xml_next(&xml, &token) > MH_XML_END)
        if (token.kind == MH_XML_OPEN && mh_xml_is(&token, name))
            return mh_xml_next(&xml, &token) == MH_XML_TEXT && mh_xml_text(&token, out, room);
    return false;
}
