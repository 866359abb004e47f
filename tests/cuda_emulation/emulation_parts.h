/* SPDX-License-Identifier: BSD-3-Clause */
/** What the parts of the emulation share. */
#pragma once

#include "tests/cuda_emulation/cuda_runtime.h"

/** End the program: it does what no GPU would bear. */
[[noreturn]] void mill_emu_stop(const char *what);
/** 0 .. n - 1 */
size_t mill_emu_random(size_t n);
/** All blocks of a kernel, each thread of which is a call of thread. */
void mill_emu_run_grid(dim3 grid, dim3 block, const std::function<void()> &thread);
