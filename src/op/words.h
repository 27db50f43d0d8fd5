/* words.h - the words of a pipeline text, and errors that say which of them is wrong
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pure functions.
 */
#ifndef MH_OP_WORDS_H
#define MH_OP_WORDS_H

#include "op/step.h"

/* A part of the text. */
typedef struct mh_word {
    const char *at;
    size_t length;
} mh_word;

/* A text that is read word by word. */
typedef struct mh_words {
    const char *text; /* the whole pipeline, ended by NUL */
    const char *at;   /* what is read next */
} mh_words;

/* The next word of the step: up to a blank, '|', ';' or the line's end. False: there is none. */
bool mh_words_next(mh_words *words, mh_word *out);

/* Passes over blanks and gives the character there. */
char mh_words_peek(mh_words *words);

/* Reads what stands behind an op's name. Errors: MH_ERR_INVALID. */
MH_MUST_CHECK mh_status mh_words_arguments(mh_words *words, mh_word name, mh_step *step,
                                           mh_error *err);

/* MH_ERR_INVALID with "WHAT 'word' at character N of the pipeline HINT". */
mh_status mh_words_fail(const mh_words *words, mh_word word, const char *what, const char *hint,
                        mh_error *err);

bool mh_word_is(mh_word word, const char *text);

#endif
