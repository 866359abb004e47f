/** A backend: one table of functions, chosen at run time. */
#ifndef MILL_BACKEND_H
#define MILL_BACKEND_H

#include "kernels/common.h"

MILL_EXTERN_C_BEGIN

typedef struct mill_backend mill_backend;

/** The CPU backend for the best instruction set of this machine, or the one
 *  named ("x86-64-v2", "x86-64-v3", "x86-64-v4"; NULL: the best).  NULL when unknown
 *  or unsupported here. */
const mill_backend *mill_backend_cpu(const char *isa);

/** "cpu x86-64-v4", "cuda NVIDIA H200": recorded in the result file. */
const char *mill_backend_name(const mill_backend *backend);

MILL_EXTERN_C_END

#endif
