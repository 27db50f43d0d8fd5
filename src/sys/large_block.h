/* large_block.h - blocks of many pages, on huge ones where the machine allows that
 * SPDX-License-Identifier: Apache-2.0
 *
 * What is read at random from memory of 4 KiB pages waits for the page tables as long as for the
 * bytes. The first touch of such memory is dear too: a fault for each page.
 */
#ifndef MH_SYS_LARGE_BLOCK_H
#define MH_SYS_LARGE_BLOCK_H

#include <stddef.h>

#define MH_LARGE_BLOCK ((size_t)2 << 20) /* bytes of a huge page: smaller blocks gain nothing */

/* Zeroed memory of that many bytes, at least MH_LARGE_BLOCK; NULL: there is none. Any thread. */
void *mh_large_block_new(size_t bytes);

/* `bytes` as it was made. NULL allowed. Any thread. */
void mh_large_block_free(void *block, size_t bytes);

#endif
