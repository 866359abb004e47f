/* SPDX-License-Identifier: BSD-3-Clause */
/* Choice of the CPU backend and particle engine. */
#include <string.h>

#include "kernels/cpu/isa.h"

#if defined(MILL_HAVE_ISA_V2) || defined(MILL_HAVE_ISA_V3) || defined(MILL_HAVE_ISA_V4)
#define MILL_X86 1
#endif

typedef struct isa_entry {
  const char *name;
  const mill_backend *backend;
  const mill_particle_ops *particles;
} isa_entry;

#define ENTRY(name, symbol)                                                                        \
  {                                                                                                \
    name, &mill_backend_cpu_##symbol, &mill_particle_ops_cpu_##symbol                              \
  }

/* Find the named instruction set, or the best one (isa NULL), if this machine runs it; else all
 * zeros. */
static isa_entry find(const char *isa)
{
  isa_entry table[4];
  int n = 0;
#ifdef MILL_X86
  __builtin_cpu_init();
#endif
#ifdef MILL_HAVE_ISA_V4
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
    table[n++] = (isa_entry)ENTRY("x86-64-v4", x86_64_v4);
#endif
#ifdef MILL_HAVE_ISA_V3
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2"))
    table[n++] = (isa_entry)ENTRY("x86-64-v3", x86_64_v3);
#endif
#ifdef MILL_HAVE_ISA_V2
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt"))
    table[n++] = (isa_entry)ENTRY("x86-64-v2", x86_64_v2);
#endif
#ifdef MILL_HAVE_ISA_GENERIC
  table[n++] = (isa_entry)ENTRY("generic", generic);
#endif
  for (int i = 0; i < n; i++)
    if (!isa || strcmp(isa, table[i].name) == 0)
      return table[i];
  return (isa_entry){0};
}

const mill_backend *mill_backend_cpu(const char *isa)
{
  return find(isa).backend;
}

const mill_particle_ops *mill_particle_ops_cpu(const char *isa)
{
  return find(isa).particles;
}
