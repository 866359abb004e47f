/* SPDX-License-Identifier: BSD-3-Clause */
/* What needs no GPU: the choice of a rank's GPU, and the verdict on rows of two backends. */
#include "tests/mill_test.h"

#include "kernels/base/error.h"
#include "kernels/cuda/device_choice.h"
#include "tests/cuda/verdict.h"

/* --- tables: what a machine has (input), choice and message (expected) --- */

/* with CUDA 12.4, and from 12.8 on */
#define DEFAULT_BUILD   "80-real;90-real;90-virtual"
#define BLACKWELL_BUILD "80-real 90-real 100-real 120-real 90-virtual"

static const mill_gpu_facts t4 = {"Tesla T4", "t4", 7, 5, MILL_GPU_SHARED};
static const mill_gpu_facts a100 = {"NVIDIA A100", "a100", 8, 0, MILL_GPU_SHARED};
static const mill_gpu_facts l4 = {"NVIDIA L4", "l4", 8, 9, MILL_GPU_SHARED};
static const mill_gpu_facts h200 = {"NVIDIA H200", "h200", 9, 0, MILL_GPU_SHARED};
static const mill_gpu_facts other = {"NVIDIA H200", "other", 9, 0, MILL_GPU_SHARED};
static const mill_gpu_facts b200 = {"NVIDIA B200", "b200", 10, 0, MILL_GPU_SHARED};
static const mill_gpu_facts alone = {"NVIDIA H200", "alone", 9, 0, MILL_GPU_EXCLUSIVE};
static const mill_gpu_facts barred = {"NVIDIA A100", "barred", 8, 0, MILL_GPU_PROHIBITED};

MILL_TEST(code)
{
  static const struct {
    const char *build;
    int major, minor, may_translate, has_code;
  } row[] = {{DEFAULT_BUILD, 7, 5, 1, 0},
             {DEFAULT_BUILD, 8, 0, 1, 1},
             {DEFAULT_BUILD, 8, 9, 0, 1}, /* machine code of the same major version */
             {DEFAULT_BUILD, 9, 0, 0, 1},
             {DEFAULT_BUILD, 10, 0, 1, 1}, /* PTX */
             {DEFAULT_BUILD, 10, 0, 0, 0},
             {BLACKWELL_BUILD, 9, 0, 0, 1},
             {BLACKWELL_BUILD, 10, 0, 0, 1},
             {BLACKWELL_BUILD, 10, 3, 0, 1},
             {BLACKWELL_BUILD, 12, 0, 0, 1},
             {BLACKWELL_BUILD, 11, 0, 0, 0},
             {BLACKWELL_BUILD, 11, 0, 1, 1},
             {"89", 8, 0, 1, 0}, /* a later minor version does not run on an earlier one */
             {"89", 8, 9, 0, 1},
             {"75-real 80-real", 7, 5, 0, 1},
             {"75-real 80-real", 9, 0, 1, 0},
             {"75", 12, 0, 1, 1},
             {"90a-real", 9, 0, 0, 1},
             {"90a", 10, 0, 1, 0},  /* for this one only, its PTX too */
             {"100f", 10, 3, 0, 1}, /* for its family */
             {"100f-real", 10, 0, 0, 1},
             {"103f", 10, 0, 1, 0},
             {"100f", 12, 0, 1, 0},
             {"100a", 10, 3, 1, 0},
             {"native", 7, 0, 0, 1},
             {"all-major", 9, 0, 0, 1},
             {"100-real", 10, 3, 0, 1},
             {"100-real", 9, 0, 1, 0}};
  for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
    if (mill_gpu_has_code(row[i].build, row[i].major, row[i].minor, row[i].may_translate) !=
        row[i].has_code)
      fail_msg("%s on sm_%d%d, translating %d: expected %d", row[i].build, row[i].major,
               row[i].minor, row[i].may_translate, row[i].has_code);
}

/** A row of the table has DEFAULT_BUILD, and 13000 as driver and runtime, unless it sets them. */
typedef struct choice_row {
  const char *what;
  int driver, runtime; /* NONE: no driver */
  const char *build;
  const mill_gpu_facts *gpu[3];
  int local_rank;
  int code, choice;       /* expected; no choice where there is an error */
  const char *message[3]; /* all of these words in it */
} choice_row;

enum { NONE = -1 };

static const choice_row choices[] = {
    {"one GPU", .gpu = {&h200}},
    {"rank 1 of two GPUs", .gpu = {&h200, &other}, .local_rank = 1, .choice = 1},
    {"rank 2 of two GPUs", .gpu = {&h200, &other}, .local_rank = 2, .choice = 0},
    {"an old one next to it", .gpu = {&t4, &a100}, .choice = 1},
    {"two fit of three", .gpu = {&a100, &t4, &h200}, .local_rank = 1, .choice = 2},
    {"barred passed over", .gpu = {&barred, &h200}, .choice = 1},
    {"minor version of the driver", 12040, 12080, "80-real", .gpu = {&a100}},
    {"PTX", .gpu = {&b200}},
    {"a build for it", .build = "75-real", .gpu = {&t4}},
    {"sm_89 on sm_80's code", .gpu = {&l4}},
    {"driver before 12.4: launch by launch", 12020, 12040, .gpu = {&h200}},
    {"no driver", .driver = NONE, .code = MILL_ERR_CONFIG,
     .message = {"no NVIDIA driver", "a node with a GPU"}},
    {"no GPU", .code = MILL_ERR_CONFIG, .message = {"sees no GPU", "CUDA_VISIBLE_DEVICES"}},
    {"driver before 12", 11080, 12040, .gpu = {&h200}, .code = MILL_ERR_CONFIG,
     .message = {"CUDA 11.8", "12.0", "newer driver"}},
    {"driver of the major version before", 12080, .gpu = {&h200}, .code = MILL_ERR_CONFIG,
     .message = {"CUDA 12.8", "13.0"}},
    {"too old", .gpu = {&t4}, .code = MILL_ERR_CONFIG,
     .message = {"no code for the GPU Tesla T4 (sm_75)", "MILL_CUDA_ARCHITECTURES 75",
                 DEFAULT_BUILD}},
    {"PTX too new for the driver", 12040, 12080, .gpu = {&b200}, .code = MILL_ERR_CONFIG,
     .message = {"PTX", "CUDA 12.4", "MILL_CUDA_ARCHITECTURES 100"}},
    {"prohibited", .gpu = {&barred}, .code = MILL_ERR_BACKEND,
     .message = {"admits no programs", "NVIDIA A100"}}};

MILL_TEST(choice)
{
  for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
    const choice_row *row = &choices[i];
    mill_gpu_facts gpu[3];
    int choice = 99, n_gpu = 0;
    for (; n_gpu < 3 && row->gpu[n_gpu]; n_gpu++)
      gpu[n_gpu] = *row->gpu[n_gpu];
    const int driver = row->driver == NONE ? 0 : row->driver ? row->driver : 13000;
    const mill_gpu_node node = {driver, row->runtime ? row->runtime : 13000,
                                row->build ? row->build : DEFAULT_BUILD, n_gpu, gpu};
    const int expected = row->code == MILL_OK ? row->choice : -1;
    mill_error_clear();
    const int code = mill_gpu_choose(&node, row->local_rank, &choice);
    if (code != row->code || choice != expected)
      fail_msg("%s: code %d and GPU %d, expected %d and %d: %s", row->what, code, choice, row->code,
               expected, mill_error_message());
    for (int k = 0; k < 3 && row->message[k]; k++)
      if (!strstr(mill_error_message(), row->message[k]))
        fail_msg("%s: no '%s' in '%s'", row->what, row->message[k], mill_error_message());
  }
}

MILL_TEST(share)
{
  static const struct {
    const char *what;
    int n_rank;
    const mill_gpu_facts *chosen[5];
    int rank, code, n_sharing, place;
  } row[] = {{"one each", 2, {&h200, &other}, 1, MILL_OK, 1, 0},
             {"first of two", 2, {&h200, &h200}, 0, MILL_OK, 2, 0},
             {"second of two", 2, {&h200, &h200}, 1, MILL_OK, 2, 1},
             {"five on two", 5, {&h200, &other, &h200, &other, &h200}, 4, MILL_OK, 3, 2},
             {"five on two, the other", 5, {&h200, &other, &h200, &other, &h200}, 3, MILL_OK, 2, 1},
             {"exclusive, alone", 2, {&alone, &h200}, 0, MILL_OK, 1, 0},
             {"exclusive, shared", 2, {&alone, &alone}, 1, MILL_ERR_BACKEND, 2, 1}};
  for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
    mill_gpu_facts chosen[5];
    int n_sharing = 0, place = 0;
    for (int k = 0; k < row[i].n_rank; k++)
      chosen[k] = *row[i].chosen[k];
    const int code = mill_gpu_share(row[i].n_rank, chosen, row[i].rank, &n_sharing, &place);
    if (code != row[i].code || n_sharing != row[i].n_sharing || place != row[i].place)
      fail_msg("%s: code %d, rank %d of %d", row[i].what, code, place, n_sharing);
    if (code != MILL_OK) {
      assert_says("2 ranks");
      assert_says("one rank a GPU");
    }
  }
}

MILL_TEST(memory)
{
  size_t bytes = 0;
  const size_t gib = (size_t)1 << 30;
  assert_int_equal(mill_gpu_memory("G", 140 * gib, 1, &bytes), MILL_OK);
  assert_int_equal(bytes, 140 * gib);
  assert_int_equal(mill_gpu_memory("G", 140 * gib, 4, &bytes), MILL_OK);
  assert_int_equal(bytes, 35 * gib);
  assert_fails(mill_gpu_memory("G", gib - 1, 1, &bytes), MILL_ERR_MEMORY,
               "the GPU G has 1023 MiB free; a rank needs 1024 at least");
  assert_fails(mill_gpu_memory("G", 3 * gib, 4, &bytes), MILL_ERR_MEMORY,
               "3072 MiB free for the 4 ranks that share it");
  assert_says("fewer ranks");
}

/* --- planted errors must be found (verdict.h) --- */

enum { N_STAR = 5000 };

MILL_TEST(limit_is_the_binomial_one)
{
  /* scipy.stats.binom.ppf(0.99, n, 0.001) */
  static const int expected[][2] = {{1, 0}, {100, 1}, {200, 2}, {500, 3}, {1000, 4}, {5000, 11}};
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
    assert_int_equal(most_outside(expected[i][0]), expected[i][1]);
}

/* Add `size` tolerances to n_bad rows, in label, velocity, F and v sin i in turn. */
static void plant(mill_fit_result *row, int n_bad, double size)
{
  for (int i = 0; i < n_bad; i++) {
    mill_fit_result *r = &row[7 * i];
    double *const at[] = {&r->label[1], &r->vrad_km_s, &r->m2ll, &r->m2ll, &r->vsini_km_s};
    const double by[] = {TOLERANCE_SIGMA * r->label_err[1], -TOLERANCE_SIGMA * r->vrad_err_km_s,
                         TOLERANCE_M2LL, -TOLERANCE_M2LL, TOLERANCE_SIGMA * r->vsini_err_km_s};
    *at[i % 5] += size * by[i % 5];
  }
}

MILL_TEST(planted_errors_are_found)
{
  static mill_fit_result cpu[N_STAR], gpu[N_STAR];
  for (int i = 0; i < N_STAR; i++) {
    cpu[i] = (mill_fit_result){.status = MILL_STATUS_FITTED,
                               .n_label = 2,
                               .m2ll = 1000.0 + i,
                               .vrad_km_s = 10.0,
                               .vrad_err_km_s = 0.5,
                               .vsini_km_s = 5.0,
                               .vsini_err_km_s = 2.0,
                               .label = {5000.0, 4.0},
                               .label_err = {50.0, 0.1}};
    gpu[i] = cpu[i];
  }
  const int most = most_outside(N_STAR);
  verdict v = compare(N_STAR, cpu, gpu, 0);
  assert_true(is_good(&v) && v.n_outside == 0 && is_same(&cpu[0], &gpu[0]));
  plant(gpu, 100, 0.9); /* within the tolerances */
  v = compare(N_STAR, cpu, gpu, 0);
  assert_true(is_good(&v) && v.n_outside == 0 && v.sum_sigma > 0.0 && !is_same(&cpu[0], &gpu[0]));
  memcpy(gpu, cpu, sizeof gpu);
  plant(gpu, most, 1.1); /* as many as may be outside */
  v = compare(N_STAR, cpu, gpu, 0);
  assert_true(is_good(&v) && v.n_outside == most);
  /* one star more is outside: NaN in a label or in F, or another status */
  for (int kind = 0; kind < 3; kind++) {
    mill_fit_result *last = &gpu[N_STAR - 1];
    *last = cpu[N_STAR - 1];
    if (kind == 0)
      last->label[0] = NAN;
    else if (kind == 1)
      last->m2ll = NAN;
    else
      last->status = MILL_STATUS_NO_ARM;
    v = compare(N_STAR, cpu, gpu, 0);
    assert_true(!is_good(&v) && v.n_outside == most + 1);
  }
  /* stars that neither has fitted tell nothing */
  for (int i = 0; i < N_STAR; i++)
    cpu[i].status = gpu[i].status = MILL_STATUS_NO_ARM;
  v = compare(N_STAR, cpu, gpu, 0);
  assert_true(!is_good(&v) && v.n_outside == 0);
}

MILL_TEST_MAIN(NULL, NULL)
