/* SPDX-License-Identifier: BSD-3-Clause */
/** The backend of the fiber build. */
#ifndef FIBER_BACKEND_H
#define FIBER_BACKEND_H

#include "kernels/backend.h"
#include "kernels/fiber/fiber.h"

/** kernels/cpu/cpu_backend.c compiled with MILL_BLOCK_FIBERS. */
extern const mill_backend mill_backend_cpu_fiber;

#endif
