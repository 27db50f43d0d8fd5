/* synth_tokens.c - millhead synth tokens: documents of tokens, as Megatron keeps them
 * SPDX-License-Identifier: Apache-2.0
 *
 * Tokens are drawn so that number k comes about 1/k as often as the first (Zipf), lengths of
 * documents so that their logarithms are spread evenly around a few hundred tokens. Each document
 * ends with END.
 */
#include "synth.h"

#include "cli.h"
#include "interrupts.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WHERE "synth tokens"
#define END 50256u /* <|endoftext|> of GPT-2 */
#define SHORTEST 5.0
#define LONGEST 20000.0
#define LENGTH_SALT UINT64_C(0x6c656e677468)

/* Lengths of documents. */
typedef struct lengths {
    int32_t *list;
    uint64_t count, room;
} lengths;

static double share(uint64_t seed, uint64_t at) /* from 0 up to 1 */
{
    return (double)(mh_synth_drawn(seed, at) >> 11) * 0x1p-53;
}

static bool add_length(lengths *self, uint64_t length)
{
    if (self->count == self->room) {
        uint64_t room = self->room ? self->room * 2 : 1024;
        int32_t *list = realloc(self->list, room * sizeof *list);
        if (!list)
            return false;
        self->list = list;
        self->room = room;
    }
    self->list[self->count++] = (int32_t)htole32((uint32_t)length);
    return true;
}

static bool write_document(FILE *file, uint64_t first, uint64_t length, uint64_t seed)
{
    for (uint64_t i = 0; i < length; i++) {
        uint64_t id = (uint64_t)exp(share(seed, first + i) * log(END)) - 1;
        uint16_t token = htole16((uint16_t)(i + 1 == length ? END : id));
        if (fwrite(&token, sizeof token, 1, file) != 1 || mh_cli_interrupted())
            return false;
    }
    return true;
}

static bool write_tokens(FILE *file, lengths *documents, uint64_t count, uint64_t seed)
{
    for (uint64_t done = 0; done < count;) {
        double size =
            SHORTEST * pow(LONGEST / SHORTEST, share(seed ^ LENGTH_SALT, documents->count));
        uint64_t length = (uint64_t)size < count - done ? (uint64_t)size : count - done;
        if (!write_document(file, done, length, seed) || !add_length(documents, length))
            return false;
        done += length;
    }
    return true;
}

static bool write_number(FILE *file, uint64_t number)
{
    number = htole64(number);
    return fwrite(&number, sizeof number, 1, file) == 1;
}

static bool write_index(FILE *file, const lengths *documents)
{
    uint64_t at = 0;
    bool good = fwrite("MMIDIDX\0\0", 9, 1, file) == 1 && write_number(file, 1) &&
                fputc(8, file) != EOF && write_number(file, documents->count) &&
                write_number(file, documents->count + 1) &&
                fwrite(documents->list, sizeof *documents->list, documents->count, file) ==
                    documents->count;
    for (uint64_t i = 0; good && i < documents->count; i++) {
        good = write_number(file, at);
        at += 2 * (uint64_t)le32toh((uint32_t)documents->list[i]);
    }
    for (uint64_t i = 0; good && i <= documents->count; i++)
        good = write_number(file, i);
    return good;
}

/* A new file; NULL with errno. */
static FILE *create(char *path, const char *directory, const char *name)
{
    int length = snprintf(path, PATH_MAX, "%s/%s", directory, name);
    if (length <= 0 || length >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    return fopen(path, "wbx");
}

static bool close_file(FILE *file, bool good)
{
    return (!file || fclose(file) == 0) && good;
}

int mh_synth_tokens(const char *directory, uint64_t count, uint64_t seed, bool json)
{
    char bin[PATH_MAX] = "", idx[PATH_MAX] = "";
    lengths documents = {0};
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        return mh_cli_fail(MH_CLI_FAILED, WHERE, "name another directory", "cannot make %s: %s",
                           directory, strerror(errno));
    mh_cli_heed_signals();
    FILE *tokens = create(bin, directory, "tokens.bin");
    FILE *index = tokens ? create(idx, directory, "tokens.idx") : NULL;
    bool good = index && write_tokens(tokens, &documents, count, seed);
    good = close_file(tokens, good && write_index(index, &documents));
    good = close_file(index, good);
    int failure = errno;
    if (!good && tokens)
        (void)unlink(bin);
    if (!good && index)
        (void)unlink(idx);
    free(documents.list);
    if (mh_cli_interrupted())
        return mh_cli_fail(MH_CLI_INTERRUPTED, WHERE, "run it again",
                           "interrupted: nothing is left");
    if (!good)
        return mh_cli_fail(MH_CLI_FAILED, WHERE, "look at the disk, or name another directory",
                           "cannot write %s: %s", index || !tokens ? bin : idx, strerror(failure));
    if (json)
        (void)printf("{\"files\": 2, \"tokens\": %" PRIu64 ", \"documents\": %" PRIu64 "}\n", count,
                     documents.count);
    else
        (void)printf("%s, %s: %" PRIu64 " tokens in %" PRIu64 " documents\n", bin, idx, count,
                     documents.count);
    return MH_CLI_OK;
}
