/* Which of the CPU backends runs here. */
#include <string.h>

#include "kernels/cpu/isa.h"

#if defined(MILL_HAVE_ISA_V2) || defined(MILL_HAVE_ISA_V3) || defined(MILL_HAVE_ISA_V4)
#define MILL_X86 1
#endif

const mill_backend *mill_backend_cpu(const char *isa)
{
  const mill_backend *table[4];
  const char *name[4];
  int n = 0;
#ifdef MILL_X86
  __builtin_cpu_init();
#endif
#ifdef MILL_HAVE_ISA_V4
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma")) {
    table[n] = &mill_backend_cpu_x86_64_v4;
    name[n++] = "x86-64-v4";
  }
#endif
#ifdef MILL_HAVE_ISA_V3
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    table[n] = &mill_backend_cpu_x86_64_v3;
    name[n++] = "x86-64-v3";
  }
#endif
#ifdef MILL_HAVE_ISA_V2
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt")) {
    table[n] = &mill_backend_cpu_x86_64_v2;
    name[n++] = "x86-64-v2";
  }
#endif
#ifdef MILL_HAVE_ISA_GENERIC
  table[n] = &mill_backend_cpu_generic;
  name[n++] = "generic";
#endif
  for (int i = 0; i < n; i++)
    if (!isa || strcmp(isa, name[i]) == 0)
      return table[i];
  return NULL;
}
