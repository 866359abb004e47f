/* SPDX-License-Identifier: BSD-3-Clause */
/* Particles on an emulated GPU: transfers, too little memory, failures. */
#include "tests/cuda/short_evolutions.h"

#include "kernels/gpu.h"
#include "tests/cuda_emulation/emulation.h"

static const mill_particle_ops *tested;

enum { SPARE = 128 << 20 }; /* what kernels/cuda/particles.cu leaves to CUDA */

/* The first test: it asks for the most memory so far. */
MILL_TEST(what_does_not_fit_goes_in_turns)
{
  MILL_AT_END(evolution_end) evolution whole, turns;
  problems_of(&whole, MILL_DENSITY_EXACT);
  turns = whole;
  evolution_run_by(&whole, tested);
  mill_emulation.memory_bytes = SPARE + mill_emulation_count().n_byte_most * 5 / 6;
  const int64_t n_upload = (int64_t)mill_emulation_count().n_upload;
  evolution_run_by(&turns, tested);
  assert_int_equal((int64_t)mill_emulation_count().n_upload - n_upload, 2);
  mill_emulation_reset();
  for (int i = 0; i < MAX_PROBLEM; i++)
    assert_same_bits(&turns, i, &whole, i);
  assert_int_equal(mill_emulation_count().n_byte_now, 0);
}

MILL_TEST(failures_are_told_and_leave_nothing)
{
  MILL_AT_END(evolution_end) evolution e;
  problems_of(&e, MILL_DENSITY_EXACT);
  mill_emulation.memory_bytes = 1 << 12;
  assert_fails(evolution_try(&e, tested), MILL_ERR_MEMORY,
               "fewer particles (now 130), steps (131)");
  assert_non_null(strstr(mill_error_message(), "give fewer particles"));
  mill_emulation_reset();
  mill_emulation.n_kernel_to_fail = 3;
  mill_emulation.kernel_error = 700;
  assert_fails(evolution_try(&e, tested), MILL_ERR_BACKEND, "the evolution of particles");
  mill_emulation_reset();
  assert_int_equal(mill_emulation_count().n_byte_now, 0);
  evolution_run_by(&e, tested); /* a new one is not harmed */
}

MILL_TEST(a_whole_evolution_is_two_transfers)
{
  for (int form = 0; form < 2; form++) {
    MILL_AT_END(evolution_end) evolution e;
    problems_of(&e, form);
    const mill_emulation_counts before = mill_emulation_count();
    evolution_run_by(&e, tested);
    const mill_emulation_counts after = mill_emulation_count();
    assert_int_equal(after.n_upload - before.n_upload, 1);
    assert_int_equal(after.n_synchronize - before.n_synchronize, 2); /* its end, and freeing */
    /* each stride with its moments, the density, the positions */
    assert_int_equal(after.n_kernel - before.n_kernel, 2 * 3 + 2 + 1);
    /* positions, moments, density, bound and step, with what aligns them */
    const size_t least = sizeof(double) * MAX_PROBLEM *
                         (N_SHORT + (size_t)(e.s.n_step + 1) * MILL_PARTICLE_MOMENTS + 41 + 1);
    assert_in_range(after.download_bytes - before.download_bytes, least, least + 2048);
  }
}

int main(void)
{
  int err = MILL_OK;
  tested = mill_particle_ops_cuda(&err);
  return MILL_RUN_TESTS(NULL, NULL);
}
