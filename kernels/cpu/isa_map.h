/** Names of the maps that kernels/cpu/cpu_map.c defines, one for each instruction set, as
 *  kernels/cpu/isa.h has those of the backend. */
#ifndef MILL_ISA_MAP_H
#define MILL_ISA_MAP_H

#include "kernels/cpu/isa.h"
#include "kernels/particles/map.h"

extern const mill_map_ops mill_map_ops_cpu_x86_64_v2;
extern const mill_map_ops mill_map_ops_cpu_x86_64_v3;
extern const mill_map_ops mill_map_ops_cpu_x86_64_v4;
extern const mill_map_ops mill_map_ops_cpu_generic;
extern const mill_map_ops mill_map_ops_cpu_fiber;

#endif
