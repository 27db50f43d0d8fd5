/* kernels_avx2.h - the loops that touch every pixel, for x86 with AVX2
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_OP_X86_KERNELS_AVX2_H
#define MH_OP_X86_KERNELS_AVX2_H

#include "op/kernels.h"

#if defined(__x86_64__)
#define MH_X86 1
extern const mh_kernels mh_kernels_avx2;
#else
#define MH_X86 0
#endif

#endif
