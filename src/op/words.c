/* words.c - the words of a pipeline text, and errors that say which of them is wrong
 * SPDX-License-Identifier: Apache-2.0
 */
#include "op/words.h"

#include "base/error.h"
#include "base/nearest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HINT_BYTES 240
#define CHOICE_BYTES 32

mh_status mh_words_fail(const mh_words *words, mh_word word, const char *what, const char *hint,
                        mh_error *err)
{
    int length = word.length < 40 ? (int)word.length : 40;
    return mh_fail(err, MH_ERR_INVALID, "%s '%.*s' at character %zu of the pipeline%s", what,
                   length, word.at, (size_t)(word.at - words->text) + 1, hint);
}

bool mh_word_is(mh_word word, const char *text)
{
    return strlen(text) == word.length && memcmp(word.at, text, word.length) == 0;
}

char mh_words_peek(mh_words *words)
{
    while (*words->at == ' ' || *words->at == '\t' || *words->at == '\r')
        words->at++;
    return *words->at;
}

bool mh_words_next(mh_words *words, mh_word *out)
{
    (void)mh_words_peek(words);
    *out = (mh_word){words->at, strcspn(words->at, " \t\r\n|;")};
    words->at += out->length;
    return out->length > 0;
}

/* --- sizes, numbers, choices --- */

/* A whole number from 1 on; gives the characters it has, or 0. */
static size_t read_side(const char *at, uint32_t *out)
{
    uint64_t number = 0;
    size_t length = strspn(at, "0123456789");
    if (length == 0 || length > 6)
        return 0;
    for (size_t i = 0; i < length; i++)
        number = number * 10 + (uint64_t)(at[i] - '0');
    *out = (uint32_t)number;
    return number >= 1 && number <= MH_PICTURE_SIDE_MOST ? length : 0;
}

static bool read_size(mh_step *step, mh_word word)
{
    uint32_t rows, columns;
    size_t first = read_side(word.at, &rows), second = 0;
    if (first == 0)
        return false;
    if (first == word.length) {
        step->size = (mh_size){rows, rows};
        step->one_side = true;
        return true;
    }
    if (word.at[first] == 'x')
        second = read_side(word.at + first + 1, &columns);
    if (second == 0 || first + 1 + second != word.length)
        return false;
    step->size = (mh_size){columns, rows};
    return (uint64_t)rows * columns <= MH_PICTURE_PIXELS_MOST;
}

/* A number, or two with a slash between them; all of the text. */
static bool read_number(const char *text, double *out)
{
    char *end;
    if (strspn(text, "0123456789+-.eE/") != strlen(text))
        return false;
    *out = strtod(text, &end);
    if (end == text)
        return false;
    if (*end == '/') {
        const char *below = end + 1;
        *out /= strtod(below, &end);
        if (end == below)
            return false;
    }
    return *end == '\0' && isfinite(*out);
}

static bool read_numbers(mh_step *step, const mh_argument *argument, mh_word word)
{
    unsigned count = 0;
    for (size_t at = 0; at <= word.length;) {
        char text[CHOICE_BYTES];
        size_t length = 0;
        while (at + length < word.length && word.at[at + length] != ',')
            length++;
        if (length >= sizeof text || count >= argument->most)
            return false;
        memcpy(text, word.at + at, length);
        text[length] = '\0';
        double *number = &step->numbers[argument->slot][count];
        if (!read_number(text, number) || *number < argument->low || *number > argument->high)
            return false;
        count++;
        at += length + 1;
    }
    step->counts[argument->slot] = (uint8_t)count;
    return count >= argument->least;
}

/* Choice number `at` of a list, as text; false beyond the last. */
static bool choice(const char *choices, unsigned at, char out[CHOICE_BYTES])
{
    for (unsigned i = 0; i < at && *choices; i++) {
        choices += strcspn(choices, " ");
        choices += *choices == ' ';
    }
    (void)snprintf(out, CHOICE_BYTES, "%.*s", (int)strcspn(choices, " "), choices);
    return out[0] != '\0';
}

static bool read_choice(mh_step *step, const mh_argument *argument, mh_word word)
{
    char text[CHOICE_BYTES];
    for (unsigned at = 0; choice(argument->choices, at, text); at++)
        if (mh_word_is(word, text)) {
            step->words[argument->slot] = (uint8_t)(at + 1);
            return true;
        }
    return false;
}

/* --- arguments --- */

static bool read_value(mh_step *step, const mh_argument *argument, mh_word value)
{
    if (argument->kind == MH_ARGUMENT_SIZE)
        return read_size(step, value);
    if (argument->kind == MH_ARGUMENT_WORD)
        return read_choice(step, argument, value);
    return read_numbers(step, argument, value);
}

/* Which argument a word is for, by its key or by what it is; *value is what stands behind '='. */
static const mh_argument *argument_of(const mh_op *op, mh_word word, mh_word *value)
{
    const char *equals = memchr(word.at, '=', word.length);
    mh_word key = {word.at, equals ? (size_t)(equals - word.at) : 0};
    *value = word;
    for (const mh_argument *a = op->arguments; a->kind != MH_ARGUMENT_END; a++) {
        mh_step trial = {0};
        if (equals && a->key && mh_word_is(key, a->key)) {
            *value = (mh_word){equals + 1, word.length - key.length - 1};
            return a;
        }
        if (!equals && !a->key && read_value(&trial, a, word))
            return a;
    }
    return NULL;
}

/* What may stand behind an op's name, or the nearest of it, behind "; ". */
static void suggest(const mh_op *op, mh_word word, char out[HINT_BYTES])
{
    const char *equals = memchr(word.at, '=', word.length);
    mh_nearest nearest = mh_nearest_to(word.at, equals ? (size_t)(equals - word.at) : word.length);
    int is_number = word.length && *word.at >= '0' && *word.at <= '9'; /* no name begins so */
    char kept[16][CHOICE_BYTES];
    unsigned count = 0;
    for (const mh_argument *a = op->arguments; a->kind != MH_ARGUMENT_END; a++) {
        if (a->key)
            mh_nearest_offer(&nearest, a->key);
        for (unsigned at = 0; a->choices && count < 16 && choice(a->choices, at, kept[count]); at++)
            mh_nearest_offer(&nearest, kept[count++]);
    }
    if (nearest.best && !is_number)
        (void)mh_nearest_hint(&nearest, out, HINT_BYTES);
    else
        (void)snprintf(out, HINT_BYTES, "; write: %s %s", op->name, op->usage);
}

static mh_status read_argument(mh_words *words, mh_word word, mh_step *step, uint32_t *seen,
                               mh_error *err)
{
    const mh_op *op = step->op;
    char hint[HINT_BYTES], what[HINT_BYTES];
    mh_word value;
    const mh_argument *argument = argument_of(op, word, &value);
    if (!argument) {
        suggest(op, word, hint);
        (void)snprintf(what, sizeof what, "%s does not take", op->name);
        return mh_words_fail(words, word, what, hint, err);
    }
    uint32_t bit = UINT32_C(1) << (argument - op->arguments);
    if (*seen & bit)
        return mh_words_fail(words, word, "given twice:", "", err);
    *seen |= bit;
    if (read_value(step, argument, value))
        return MH_OK;
    if (argument->kind == MH_ARGUMENT_NUMBERS)
        (void)snprintf(hint, sizeof hint, "; it takes %d to %d numbers from %g to %g",
                       argument->least, argument->most, argument->low, argument->high);
    else
        (void)snprintf(hint, sizeof hint, "; write: %s %s", op->name, op->usage);
    return mh_words_fail(words, word, "not understood:", hint, err);
}

mh_status mh_words_arguments(mh_words *words, mh_word name, mh_step *step, mh_error *err)
{
    const mh_op *op = step->op;
    uint32_t seen = 0;
    char hint[HINT_BYTES];
    for (mh_word word; mh_words_next(words, &word);)
        MH_TRY(read_argument(words, word, step, &seen, err));
    for (const mh_argument *a = op->arguments; a->kind != MH_ARGUMENT_END; a++)
        if (a->required && !(seen & UINT32_C(1) << (a - op->arguments))) {
            (void)snprintf(hint, sizeof hint, "; write: %s %s", op->name, op->usage);
            return mh_words_fail(words, name, "something is missing behind", hint, err);
        }
    const char *wrong = op->check ? op->check(step) : NULL;
    if (!wrong)
        return MH_OK;
    (void)snprintf(hint, sizeof hint, "; %s", wrong);
    return mh_words_fail(words, name, "not understood:", hint, err);
}
