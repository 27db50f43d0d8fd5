/* xml.h - a scanner for the XML that S3 answers with, pure: no file, no allocation, no recursion
 * SPDX-License-Identifier: Apache-2.0
 *
 * It knows elements and their text, and steps over attributes, comments, processing instructions
 * and the document type. No external entity, no entity of the document's own: "&lt;" and the other
 * four, and characters by number.
 */
#ifndef MH_SOURCE_XML_H
#define MH_SOURCE_XML_H

#include <stdbool.h>
#include <stddef.h>

#define MH_XML_DEPTH 32

typedef enum mh_xml_kind {
    MH_XML_ERROR, /* stays so */
    MH_XML_END,   /* of the document */
    MH_XML_OPEN,  /* <name>: `name` */
    MH_XML_TEXT,  /* between two tags: `text` */
    MH_XML_CLOSE, /* </name>, or <name/> after its MH_XML_OPEN */
} mh_xml_kind;

/* Points into what is scanned. */
typedef struct mh_xml_token {
    mh_xml_kind kind;
    const char *text; /* of a tag its name without prefix, of text all of it, escapes as they are */
    size_t length;
} mh_xml_token;

/* Caller's memory; the fields are to be read only. */
typedef struct mh_xml {
    const char *data;
    size_t size, at;
    unsigned depth;
    bool closes; /* the tag that was opened last closes itself */
    bool failed;
    size_t names[MH_XML_DEPTH], lengths[MH_XML_DEPTH]; /* of the elements that are open */
} mh_xml;

/* `data` need not end in NUL and must live as long as the scanner and its tokens. */
void mh_xml_init(mh_xml *xml, const char *data, size_t size);

mh_xml_kind mh_xml_next(mh_xml *xml, mh_xml_token *token);

/* Whether a tag has that name. */
bool mh_xml_is(const mh_xml_token *token, const char *name);

/* Text with its escapes resolved, into `out` of `room` bytes with a NUL at its end. False: it is
 * longer, has an escape that is not known or a NUL in it. */
bool mh_xml_text(const mh_xml_token *token, char *out, size_t room);

/* The text of the first element called `name`, anywhere. False: there is none, or it is too long.
 */
bool mh_xml_find(const char *data, size_t size, const char *name, char *out, size_t room);

#endif
