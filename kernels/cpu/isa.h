/* SPDX-License-Identifier: BSD-3-Clause */
/** Names defined by kernels/cpu/cpu_*.c, one set per instruction set.
 *
 *  CMake compiles those files with MILL_ISA = x86_64_v2, x86_64_v3, x86_64_v4 (or generic) and
 *  MILL_ISA_NAME, the name as a string. */
#pragma once

#include "kernels/backend.h"
#include "kernels/particles/particles.h"

#define MILL_ISA_PASTE2(a, b) a##_##b
#define MILL_ISA_PASTE(a, b)  MILL_ISA_PASTE2(a, b)
#define MILL_ISA_SYMBOL(name) MILL_ISA_PASTE(name, MILL_ISA)

extern const mill_backend mill_backend_cpu_x86_64_v2;
extern const mill_backend mill_backend_cpu_x86_64_v3;
extern const mill_backend mill_backend_cpu_x86_64_v4;
extern const mill_backend mill_backend_cpu_generic;

extern const mill_particle_ops mill_particle_ops_cpu_x86_64_v2;
extern const mill_particle_ops mill_particle_ops_cpu_x86_64_v3;
extern const mill_particle_ops mill_particle_ops_cpu_x86_64_v4;
extern const mill_particle_ops mill_particle_ops_cpu_generic;
