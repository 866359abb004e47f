/* SPDX-License-Identifier: BSD-3-Clause */
/** What the parts of the emulation share. */
#pragma once

#include "tests/cuda_emulation/cuda_runtime.h"

/** End the program with message `what`: on a GPU the code would fail. */
[[noreturn]] void mill_emu_stop(const char *what);
/** A random number from 0 to n - 1. */
size_t mill_emu_random(size_t n);
/** Run all blocks of a kernel; each GPU thread is a call of thread(). */
void mill_emu_run_grid(dim3 grid, dim3 block, const std::function<void()> &thread);
