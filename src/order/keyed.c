/* keyed.c - a keyed permutation: a Feistel network over a table of just the right size
 * SPDX-License-Identifier: Apache-2.0
 *
 * A position is a cell (row, column) of a table. A round adds to the column a random function of
 * the row, or to the row one of the column, modulo the table's size. Whatever the function, that
 * can be undone, so every round and their composition is a bijection of the cells. Where the table
 * has more cells than there are samples, a result beyond the last sample is put in again until it
 * is none ("cycle walking"): following the cycle of a permutation from inside a subset to its next
 * member is a permutation of that subset, so this holds for every count.
 *
 * The table is nearly square and has less than a column more than count, so that walking is rare
 * (with powers of two, the usual choice, up to every second result has to be put in again). The
 * number of rows is even: with two odd sizes every round would be an even permutation, and half of
 * all orders could never come.
 *
 * Rounds: in a small table a round has few bits to choose, so many are needed to reach all orders
 * equally often. With 24, the orders of up to nine samples passed a chi-square test over fifty keys
 * for each order, and never under 200 000; with 20, those of eight samples did not. Places and
 * neighbours of 1000 samples were even with 8 already; a table of 65 536 or more has 12.
 */
#include "order/keyed.h"

#define SMALL_COUNT 65536
#define ROUNDS_SMALL MH_KEYED_ROUNDS_MOST
#define ROUNDS_LARGE 12
/* 2^64 divided by the golden ratio: multiples of it are spread evenly (Weyl) */
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

__extension__ typedef unsigned __int128 wide;

/* The output function of splitmix64: every input bit changes every output bit with probability one
 * half, to within what tests can tell. */
static uint64_t mix(uint64_t bits)
{
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

/* A random function of `bits` below `size`: the product's upper half, so no division. The sizes are
 * below 2^32, so values differ in probability by less than 2^-32. */
static uint64_t drawn(uint64_t bits, uint64_t size)
{
    return (uint64_t)(((wide)mix(bits) * size) >> 64);
}

static uint64_t root_rounded_up(uint64_t square)
{
    uint64_t root = 0;
    for (uint64_t bit = UINT64_C(1) << 31; bit; bit >>= 1)
        if ((root | bit) * (root | bit) <= square)
            root |= bit;
    return root * root < square ? root + 1 : root;
}

void mh_keyed_init(mh_keyed *keyed, uint64_t count, uint64_t seed, uint64_t epoch)
{
    uint64_t rows = root_rounded_up(count);
    rows += rows & 1;
    *keyed = (mh_keyed){.count = count, .rows = rows};
    keyed->columns = count ? (count - 1) / rows + 1 : 0;
    keyed->rounds = count < SMALL_COUNT ? ROUNDS_SMALL : ROUNDS_LARGE;
    uint64_t state = mix(mix(seed + GOLDEN) + epoch);
    for (int round = 0; round < keyed->rounds; round++)
        keyed->keys[round] = mix(state += GOLDEN);
}

uint64_t mh_keyed_at(const mh_keyed *keyed, uint64_t position)
{
    uint64_t rows = keyed->rows, columns = keyed->columns;
    do {
        uint64_t row = position / columns, column = position % columns;
        for (int round = 0; round < keyed->rounds; round += 2) {
            column += drawn(row + keyed->keys[round], columns);
            column -= column >= columns ? columns : 0;
            row += drawn(column + keyed->keys[round + 1], rows);
            row -= row >= rows ? rows : 0;
        }
        position = row * columns + column;
    } while (position >= keyed->count);
    return position;
}

static void four(const mh_keyed *keyed, uint64_t *positions)
{
    const uint64_t rows = keyed->rows, columns = keyed->columns;
    uint64_t row[4], column[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        row[i] = positions[i] / columns;
        column[i] = positions[i] % columns;
    }
    for (int round = 0; round < keyed->rounds; round += 2) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            column[i] += drawn(row[i] + keyed->keys[round], columns);
            column[i] -= column[i] >= columns ? columns : 0;
            row[i] += drawn(column[i] + keyed->keys[round + 1], rows);
            row[i] -= row[i] >= rows ? rows : 0;
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        positions[i] = row[i] * columns + column[i];
}

void mh_keyed_several(const mh_keyed *keyed, uint64_t *positions, uint64_t count)
{
    uint64_t done = 0;
    for (; done + 4 <= count; done += 4) {
        four(keyed, positions + done);
        for (uint64_t i = done; i < done + 4; i++)
            if (positions[i] >= keyed->count) /* it walks on */
                positions[i] = mh_keyed_at(keyed, positions[i]);
    }
    for (; done < count; done++)
        positions[done] = mh_keyed_at(keyed, positions[done]);
}

uint64_t mh_keyed_find(const mh_keyed *keyed, uint64_t value)
{
    uint64_t rows = keyed->rows, columns = keyed->columns;
    do {
        uint64_t row = value / columns, column = value % columns;
        for (int round = keyed->rounds - 2; round >= 0; round -= 2) {
            row += rows - drawn(column + keyed->keys[round + 1], rows);
            row -= row >= rows ? rows : 0;
            column += columns - drawn(row + keyed->keys[round], columns);
            column -= column >= columns ? columns : 0;
        }
        value = row * columns + column;
    } while (value >= keyed->count);
    return value;
}
