/* braces.c - names with ranges of numbers
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/braces.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_ROOM 4096u
#define DIGITS_MOST 15u /* so that numbers can be counted with */

typedef struct range {
    const char *begin, *end; /* the brace, and what is behind the other one */
    unsigned long long first, last;
    int width;
} range;

typedef struct names {
    char ***list;
    size_t *count;
    size_t most;
    char name[NAME_ROOM]; /* the one that is being made */
} names;

/* The number at `text`; gives its digits, 0: there is none. */
static size_t read_number(const char *text, unsigned long long *out)
{
    const size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > DIGITS_MOST)
        return 0;
    *out = strtoull(text, NULL, 10);
    return digits;
}

static bool read_range(const char *brace, range *out)
{
    const char *first = brace + 1;
    const size_t left = read_number(first, &out->first);
    if (!left || strncmp(first + left, "..", 2) != 0)
        return false;
    const char *last = first + left + 2;
    const size_t right = read_number(last, &out->last);
    if (!right || last[right] != '}')
        return false;
    const bool padded = (*first == '0' && left > 1) || (*last == '0' && right > 1);
    out->width = padded ? (int)(left > right ? left : right) : 1;
    out->begin = brace;
    out->end = last + right + 1;
    return true;
}

static bool find_range(const char *text, range *out)
{
    for (const char *brace = strchr(text, '{'); brace; brace = strchr(brace + 1, '{'))
        if (read_range(brace, out))
            return true;
    return false;
}

bool mh_braces_has(const char *text)
{
    range found;
    return find_range(text, &found);
}

mh_status mh_braces_add(char ***list, size_t *count, const char *text, mh_error *err)
{
    const size_t bytes = strlen(text) + 1;
    char **longer = mh_realloc((void *)*list, *count + 1, sizeof *longer);
    if (longer)
        *list = longer;
    char *name = longer ? mh_calloc(bytes, 1) : NULL;
    if (!name)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu names", *count + 1);
    memcpy(name, text, bytes);
    longer[(*count)++] = name;
    return MH_OK;
}

/* `rest` comes behind the name's first `used` bytes. Ranges are as many as fit into a name. */
static mh_status expand(names *all, size_t used, const char *rest, mh_error *err)
{
    range found;
    const bool more = find_range(rest, &found);
    const size_t plain = more ? (size_t)(found.begin - rest) : strlen(rest);
    if (used + plain + DIGITS_MOST + 1 > NAME_ROOM)
        return mh_fail(err, MH_ERR_INVALID, "%.100s... is too long", all->name);
    memcpy(all->name + used, rest, plain);
    all->name[used + plain] = '\0';
    if (!more && *all->count == all->most)
        return mh_fail(err, MH_ERR_INVALID, "the braces stand for more than %zu names", all->most);
    if (!more)
        return mh_braces_add(all->list, all->count, all->name, err);
    if (found.last < found.first)
        return mh_fail(err, MH_ERR_INVALID, "%.*s goes down: write the smaller number first",
                       (int)(found.end - found.begin), found.begin);
    for (unsigned long long number = found.first; number <= found.last; number++) {
        const int digits = snprintf(all->name + used + plain, NAME_ROOM - used - plain, "%0*llu",
                                    found.width, number);
        MH_TRY(expand(all, used + plain + (size_t)digits, found.end, err));
    }
    return MH_OK;
}

mh_status mh_braces_expand(char ***list, size_t *count, const char *text, size_t most,
                           mh_error *err)
{
    names all = {.list = list, .count = count, .most = most};
    return expand(&all, 0, text, err);
}

void mh_braces_free(char **list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        mh_free(list[i]);
    mh_free((void *)list);
}
