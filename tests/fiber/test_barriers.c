/* SPDX-License-Identifier: BSD-3-Clause */
/* Every barrier matters: the blocks are compiled once more with barriers that can be left out, and
 * the whole fit runs without each of them in turn.
 *
 * With all barriers the order in which fibers run changes nothing.  Without a barrier, at least one
 * order must show a fault: another result, fibers that end at different barriers, or a fit without
 * end.  The barriers listed below are the exceptions, with the reason. */
#include "tests/mill_test.h"

#include <signal.h>
#include <sys/wait.h>

#include "kernels/math/block.h"

static void marked_barrier(mill_block *b, const char *function, int line);
#undef MILL_BARRIER
#define MILL_BARRIER(b) marked_barrier((b), __func__, __LINE__)
#define MILL_ISA        dropped
#define MILL_ISA_NAME   "dropped"
extern const struct mill_backend mill_backend_cpu_dropped;
#include "kernels/cpu/cpu_backend.c"
#include "kernels/cpu/cpu_logic.c"
#include "kernels/cpu/cpu_real_f32.c"

#include "tests/conformance/branches.h"
#include "tests/fiber/fiber.h"

enum { MAX_SITE = 200, N_SEED = 4, N_FIBER = 5 };

typedef struct site {
  char function[64];
  int line;
  int ordinal; /**< of the barrier in its function, from 1 */
  int detected;
} site;

static site site_list[MAX_SITE];
static int n_site;
static const site *lost[2]; /**< barriers left out; NULL: none */

/* These fits are in float32.  Of the float64 code only hidden layers run; they have no barriers. */
mill_answer_arm mill_answer_arm_f64_fiber;
void mill_layer_product_f64_fiber(const mill_layer *, const void *, int, const double *,
                                  const int *, double *const *);

void mill_answer_arm_f64_dropped(mill_block *b, const mill_model *m, mill_slot *slot, int i_arm,
                                 mill_workspace *work)
{
  mill_answer_arm_f64_fiber(b, m, slot, i_arm, work);
}

void mill_layer_product_f64_dropped(const mill_layer *layer, const void *weight, int n_row,
                                    const double *h, const int *is_value, double *const *out)
{
  mill_layer_product_f64_fiber(layer, weight, n_row, h, is_value, out);
}

/** A place in the code is known by its function and its line. */
static void marked_barrier(mill_block *b, const char *name, int line)
{
  int known = lost[0] != NULL;
  for (int i = 0; i < 2; i++)
    if (lost[i] && line == lost[i]->line && !strcmp(name, lost[i]->function))
      return;
  for (int i = 0; i < n_site && !known; i++)
    known = site_list[i].line == line && !strcmp(site_list[i].function, name);
  if (!known && n_site < MAX_SITE) {
    snprintf(site_list[n_site].function, sizeof site_list[n_site].function, "%s", name);
    site_list[n_site++].line = line;
  }
  mill_fiber_barrier(b);
}

/** Barriers that could be removed: no order of the fibers would change the result.  They stay: they
 *  cost little, and loops change more often than anyone reconsiders barriers. */
typedef struct harmless {
  const char *function;
  int first, last; /**< ordinals */
  const char *why;
} harmless;

static const char own[] = "threads read back only the elements that they wrote";
static const char serial[] = "the serial thread alone reads what it wrote";
static const char sums[] = "the sums before it end with a barrier of their own";
static const char next[] = "another barrier stands before the first reader";

static const harmless allowed[] = {
    {"body_start", 1, 1, serial},
    {"mill_block_arm", 1, 2, serial},
    {"mill_block_best_chisq", 1, 1, sums},
    {"mill_block_final", 1, 1, next}, /* in the sums of mill_block_project */
    {"mill_block_final", 2, 2, sums},
    {"mill_block_final", 3, 3, serial},
    {"mill_block_factor_error", 1, 1, sums},
    {"mill_block_fix_error", 1, 1, own},
    {"mill_block_flux", 1, 1, next},      /* mill_block_rotation_kernel */
    {"mill_block_flux_level", 1, 3, own}, /* a median counts its thread's own pixels */
    {"mill_block_guess_starts", 1, 2, serial},
    {"mill_block_guess_least", 1, 1, own},
    {"mill_block_guess_take", 1, 1, next}, /* mill_block_guess_starts, 2: see pairs */
    /* mean[0] sets the limits of a clip in mill_block_flux that no template reaches */
    {"mill_block_take_stored", 1, 1, next},
    {"mill_block_jacobian", 1, 1, serial},
    {"mill_block_curvature", 2, 2, next}, /* mill_block_locate of the next segment */
    {"mill_block_prepare", 1, 1, next},   /* in the medians */
    {"mill_block_prepare", 2, 2, serial},
    {"mill_block_prepare_lsf", 3, 3, next}, /* in mill_block_prepare */
    {"mill_block_prepare_resolution", 1, 1, serial},
    {"mill_block_prepare_resolution", 2, 2, next}, /* in the medians */
    {"mill_block_resolve", 1, 1, own},             /* a copy, where there is no resolution */
    {"mill_block_weigh_error", 1, 1, sums},
    {NULL, 0, 0, NULL}};

/** Two barriers that stand in for each other: losing both must show. */
static const struct {
  const char *function[2];
  int ordinal[2];
} pairs[] = {{{"mill_block_guess_take", "mill_block_guess_starts"}, {1, 2}}};

static int by_place(const void *a, const void *b)
{
  const site *x = a, *y = b;
  const int order = strcmp(x->function, y->function);
  return order ? order : x->line - y->line;
}

/** Runs in a child: without a barrier the program may abort or never end. */
static int differs_without(const site *s, const site *t, const work_output *expected,
                           work_input *in)
{
  fflush(stdout);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    static work_output found;
    if (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout))
      _exit(3);
    signal(SIGABRT, SIG_DFL);
    signal(SIGSEGV, SIG_DFL);
    alarm(20);
    lost[0] = s;
    lost[1] = t;
    for (unsigned seed = 1; seed <= N_SEED; seed++) {
      mill_fiber_configure(N_FIBER, seed * 104729);
      work_run(&mill_backend_cpu_dropped, in, MILL_FLOAT32, &found);
      if (memcmp(&found, expected, sizeof found) != 0)
        _exit(1);
    }
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

MILL_TEST(every_lost_barrier_shows)
{
  static work_input in;
  static work_output expected, again;
  work_make(&in, 0);
  mill_fiber_configure(N_FIBER, 1);
  work_run(&mill_backend_cpu_dropped, &in, MILL_FLOAT32, &expected);
  /* with all barriers: the ordinary fiber build, bit for bit, whatever the order */
  mill_fiber_configure(N_FIBER, 4241);
  work_run(&mill_backend_cpu_fiber, &in, MILL_FLOAT32, &again);
  assert_memory_equal(&expected, &again, sizeof expected);
  assert_true(n_site > 30 && n_site < MAX_SITE);
  qsort(site_list, (size_t)n_site, sizeof *site_list, by_place);
  int n_detected = 0, n_wrong = 0;
  for (int i = 0; i < n_site; i++) {
    site *s = &site_list[i];
    s->ordinal = i > 0 && !strcmp(s->function, s[-1].function) ? s[-1].ordinal + 1 : 1;
    s->detected = differs_without(s, NULL, &expected, &in);
    n_detected += s->detected;
    const harmless *h = allowed;
    while (h->function &&
           (strcmp(h->function, s->function) || s->ordinal < h->first || s->ordinal > h->last))
      h++;
    if (!s->detected && !h->function) {
      printf("%s, barrier %d (line %d): its loss does not show\n", s->function, s->ordinal,
             s->line);
      n_wrong++;
    }
    if (s->detected && h->function) {
      printf("%s, barrier %d (line %d): it matters, but is listed as harmless: %s\n", s->function,
             s->ordinal, s->line, h->why);
      n_wrong++;
    }
  }
  printf("%d of %d barriers matter\n", n_detected, n_site);
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    const site *both[2] = {NULL, NULL};
    for (int k = 0; k < 2; k++)
      for (int j = 0; j < n_site; j++)
        if (!strcmp(site_list[j].function, pairs[i].function[k]) &&
            site_list[j].ordinal == pairs[i].ordinal[k])
          both[k] = &site_list[j];
    assert_true(both[0] && both[1]);
    if (!differs_without(both[0], both[1], &expected, &in)) {
      printf("%s and %s: the loss of both does not show\n", both[0]->function, both[1]->function);
      n_wrong++;
    }
  }
  mill_library_clear(&in.lib);
  assert_int_equal(n_wrong, 0);
}

MILL_SEEDED_TEST_MAIN(WORK_SEED, NULL, NULL)
