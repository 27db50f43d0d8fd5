/* snappy_stub.c - stands for snappy where libblosc is linked into the command of a wheel
 * SPDX-License-Identifier: Apache-2.0
 *
 * Debian's static libblosc wants snappy, which is C++. Chunks that need it are refused before
 * libblosc sees them (blosc.c): these are never called.
 */
#define STUB(name)                                                                                 \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return 1;                                                                                  \
    }

STUB(snappy_compress)
STUB(snappy_max_compressed_length)
STUB(snappy_uncompress)
