/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions compiled twice, with and without AVX2. */
#pragma once

/** Define the function prefix##name, which runs the inline function `name` (a MILL_AVX2_BODY).  The
 *  compiled code uses AVX2 if the processor has it. */
#define MILL_AVX2_BODY __attribute__((always_inline)) static inline void
#if defined(__x86_64__)
#define MILL_AVX2(prefix, name, parameters, arguments)                                             \
  __attribute__((target("avx2"))) static void name##_avx2 parameters                               \
  {                                                                                                \
    name arguments;                                                                                \
  }                                                                                                \
  void prefix##name parameters                                                                     \
  {                                                                                                \
    if (__builtin_cpu_supports("avx2"))                                                            \
      name##_avx2 arguments;                                                                       \
    else                                                                                           \
      name arguments;                                                                              \
  }
#else
#define MILL_AVX2(prefix, name, parameters, arguments)                                             \
  void prefix##name parameters                                                                     \
  {                                                                                                \
    name arguments;                                                                                \
  }
#endif
