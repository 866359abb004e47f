/* SPDX-License-Identifier: BSD-3-Clause */
/** The processor of this machine. */
#ifndef MILL_CPU_MODEL_H
#define MILL_CPU_MODEL_H

#include <stddef.h>

/** Its model as the system names it, "unknown processor" where it does not, into out [size]. */
void mill_cpu_model(char *out, size_t size);

#endif
