/* SPDX-License-Identifier: BSD-3-Clause */
/* Choice of the CPU backend and particle engine. */
#include <string.h>

#include "kernels/backend.h"
#include "kernels/particles/particles.h"

typedef struct isa_entry {
  const char *name;
  const mill_backend *backend;
  const mill_particle_ops *particles;
} isa_entry;

/* Add an instruction set, with its backend and particle engine, if this machine runs it. */
#define OFFER(is_here, isa_name, symbol)                                                           \
  if (is_here) {                                                                                   \
    extern const mill_backend mill_backend_cpu_##symbol;                                           \
    extern const mill_particle_ops mill_particle_ops_cpu_##symbol;                                 \
    table[n++] =                                                                                   \
        (isa_entry){isa_name, &mill_backend_cpu_##symbol, &mill_particle_ops_cpu_##symbol};        \
  }
#define HAS(feature) __builtin_cpu_supports(feature)

/* Return instruction set isa (NULL: the best) if this machine runs it, else an entry of zeros. */
static isa_entry find(const char *isa)
{
  isa_entry table[4];
  int n = 0; /* OFFER fills entry n and counts up */
#ifdef MILL_HAVE_ISA_GENERIC
  OFFER(1, "generic", generic)
#else
  __builtin_cpu_init();
#endif
#ifdef MILL_HAVE_ISA_V4
  OFFER(HAS("avx512f") && HAS("avx512bw") && HAS("avx512cd") && HAS("avx512dq") &&
            HAS("avx512vl") && HAS("fma"),
        "x86-64-v4", x86_64_v4)
#endif
#ifdef MILL_HAVE_ISA_V3
  OFFER(HAS("avx2") && HAS("fma") && HAS("bmi2"), "x86-64-v3", x86_64_v3)
#endif
#ifdef MILL_HAVE_ISA_V2
  OFFER(HAS("sse4.2") && HAS("popcnt"), "x86-64-v2", x86_64_v2)
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
