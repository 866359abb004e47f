/* SPDX-License-Identifier: BSD-3-Clause */
/* How the CUDA backend drives an emulated GPU (emulation.h), with a few stars of the conformance
 * tests: streams and waits, copies, graphs, too little memory, failures. */
#include "tests/mill_test.h"

#define CONFORMANCE_STARS 14
#include "tests/conformance/stars.h"
#include "kernels/gpu.h"
#include "tests/cuda_emulation/emulation.h"

static int set_up(void **state)
{
  survey_make(state);
  data.set.max_starts = 1;
  data.set.max_eval = 20; /* where a fit ends does not matter */
  n_fit = 4;
  fit(tested, N_STAR);
  keep(&by_batch);
  return 0;
}

MILL_TEST(the_host_waits_for_rounds_only)
{
  const mill_emulation_counts before = mill_emulation_count();
  expect(&by_batch, N_STAR);
  const mill_emulation_counts after = mill_emulation_count();
  const long n_graph = after.n_graph - before.n_graph;
  const long n_kernel = after.n_kernel - before.n_kernel;
  assert_true(n_graph >= 1);
  /* a graph holds many rounds, a round a dozen kernels and more */
  assert_true(n_kernel > 20 * n_graph);
  /* a star's row comes back once, with its models, not in every round */
  assert_true(after.download_bytes - before.download_bytes <
              n_fit * (long)(sizeof(mill_fit_result) +
                             MAX_SEGMENT * (MAX_PIX * sizeof(float) + sizeof(mill_segment)) + 64) +
                  64 * n_graph);
}

MILL_TEST(an_old_driver_has_no_graph)
{
  const long before = mill_emulation_count().n_graph;
  mill_emulation.driver = 12030;
  expect(&by_batch, N_STAR);
  mill_emulation_reset();
  assert_int_equal(mill_emulation_count().n_graph, before);
}

/** Fit again with an existing pipeline; return the number of slots that it used at the end. */
static int slots_of_run(mill_pipeline *p)
{
  assert_ok(run_stars(p));
  assert_memory_equal(data.result, by_batch.result, (size_t)n_fit * sizeof *data.result);
  return p->all.n_usable;
}

MILL_TEST(a_star_goes_up_as_two_pieces_and_models_come_together)
{
  /* There are slots for all stars.  The second run's uploads are counted; short lists are not. */
  mill_pipeline *p = pipeline(tested, 8 * (n_fit + 1));
  (void)slots_of_run(p);
  const mill_emulation_counts before = mill_emulation_count();
  (void)slots_of_run(p);
  const mill_emulation_counts after = mill_emulation_count();
  mill_pipeline_destroy(p);
  assert_true(4 * n_fit <= MILL_EMULATION_LIST_BYTES);
  assert_int_equal(after.n_upload - before.n_upload, 2 * n_fit);
  /* Per launch of a graph the host waits for the end of the rounds, for rows and for models.  The
   * run also waits once for a buffer, and at its end for three streams. */
  const long n_call = after.n_graph - before.n_graph;
  assert_true(3 * n_call < 2 * n_fit); /* waits for one star after the other would be more */
  assert_true(after.n_synchronize - before.n_synchronize <= 3 * n_call + 4);
}

MILL_TEST(short_memory_changes_nothing)
{
  /* device memory for only a part of the stars and their work space */
  mill_pipeline *p = pipeline(tested, N_STAR);
  const size_t fixed = mill_emulation_count().n_byte_now;
  assert_int_equal(slots_of_run(p), N_STAR);
  const size_t all = mill_emulation_count().n_byte_now;
  mill_pipeline_destroy(p);
  int n_slot = N_STAR;
  for (size_t share = 48; share > 0 && n_slot == N_STAR; share -= 4) {
    /* the launch takes more memory than a star, and must get it before stars do */
    const size_t launch = (all - fixed) / 16, bytes = fixed + launch + (all - fixed) * share / 64;
    mill_emulation.launch_bytes = launch;
    mill_emulation.memory_bytes = bytes + bytes / 15; /* of which 1 / 16 is left alone */
    p = pipeline(tested, N_STAR);
    n_slot = slots_of_run(p);
    /* more memory, another run: all slots again */
    mill_emulation.memory_bytes = 4 * all;
    if (n_slot < N_STAR)
      assert_int_equal(slots_of_run(p), N_STAR);
    mill_pipeline_destroy(p);
    mill_emulation_reset();
  }
  assert_true(n_slot < N_STAR);
}

MILL_TEST(without_a_graph_rounds_go_on_one_by_one)
{
  static const char *const call[] = {
      "cudaGraphCreate",      "cudaGraphAddNode",     "cudaStreamBeginCaptureToGraph",
      "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphLaunch"};
  const int n = n_fit;
  n_fit = 2;
  for (size_t i = 0; i < sizeof call / sizeof call[0]; i++) {
    const long before = mill_emulation_count().n_graph;
    mill_emulation.graph_call_to_fail = call[i];
    expect(&by_batch, N_STAR);
    assert_int_equal(mill_emulation_count().n_graph, before);
    mill_emulation_reset();
  }
  n_fit = n;
}

MILL_TEST(copies_keep_their_order)
{
  enum { N_TIME = 20, N_BYTE = (5 << 20) / 2 + 17 };
  static unsigned char sent[N_BYTE], got[N_BYTE];
  mill_device *device = NULL;
  void *memory = NULL;
  assert_ok(tested->open(1, &device));
  assert_ok(tested->alloc(device, N_BYTE, &memory));
  for (int i = 0; i < N_TIME; i++) {
    memset(sent, i, N_BYTE);
    assert_ok(tested->upload(device, memory, sent, N_BYTE));
    assert_ok(tested->download(device, got, memory, N_BYTE));
    assert_memory_equal(got, sent, N_BYTE);
  }
  tested->release(device, memory);
  tested->close(device);
}

MILL_TEST(a_node_that_is_not_ready_is_told)
{
  enum { NOT_READY = 802, DRIVER_MISMATCH = 803 };
  for (int error = NOT_READY; error <= DRIVER_MISMATCH; error++) {
    mill_pipeline *p = pipeline(tested, 2);
    mill_emulation.n_kernel_to_fail = 0;
    mill_emulation.kernel_error = error;
    assert_fails(run_stars(p), MILL_ERR_BACKEND, "fabric manager of this node is not ready");
    mill_pipeline_destroy(p);
    mill_emulation_reset();
  }
}

MILL_TEST(a_failure_hands_over_what_has_finished)
{
  enum { ECC = 214, N_SLOT = 3 };
  const long before = mill_emulation_count().n_kernel;
  expect(&by_batch, N_SLOT);
  const long n_kernel = mill_emulation_count().n_kernel - before;
  mill_pipeline *p = pipeline(tested, N_SLOT);
  mill_emulation.n_kernel_to_fail = n_kernel * 3 / 4;
  mill_emulation.kernel_error = ECC;
  assert_fails(run_stars(p), MILL_ERR_BACKEND, "memory is faulty");
  mill_pipeline_destroy(p);
  mill_emulation_reset();
  int n_got = 0;
  for (int i = 0; i < n_fit; i++) {
    if (data.result[i].status == MILL_STATUS_NOT_DONE)
      continue;
    assert_memory_equal(&data.result[i], &by_batch.result[i], sizeof data.result[i]);
    n_got++;
  }
  assert_int_equal(data.run.n_out, n_got);
  printf("%d of %d stars had finished\n", n_got, n_fit);
  assert_true(n_got >= 1 && n_got < n_fit);
}
int main(void)
{
  tested = mill_backend_cuda(NULL);
  return MILL_RUN_TESTS(set_up, clean_up);
}
