/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions of LANES_IMPL, a file, once per instruction set; no include guard. */
#define LANES_NAME(name) name##_any
#define LANES_TARGET
#include LANES_IMPL
#undef LANES_NAME
#undef LANES_TARGET

#if defined(__x86_64__)
#define LANES_NAME(name) name##_avx2
#define LANES_TARGET     __attribute__((target("avx2")))
#include LANES_IMPL
#undef LANES_NAME
#undef LANES_TARGET
#endif
