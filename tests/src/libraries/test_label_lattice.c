/* SPDX-License-Identifier: BSD-3-Clause */
/* Grids of labels: which node has which model, gaps and what fills them. */
#include "tests/mill_test.h"

#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/label_lattice.h"
#include "src/libraries/library_make.h"

enum { N_AXIS = 3, N_OUT = 2, N_ALL = 6 * 5 * 4 };

static const int n_node[N_AXIS] = {6, 5, 4};
static const double node[N_AXIS][6] = {
    {4000, 4500, 5200, 5700, 6300, 7000}, {1, 1.5, 2.5, 4, 4.5}, {-2, -1, -0.5, 0.5}};

/* Models of all nodes but those in gap [n_gap], in an order that is none, and their lattice. */
typedef struct models {
  mill_library *lib;
  int n;
  double value[N_ALL * N_AXIS], mapped[N_ALL * N_AXIS];
  char name[N_ALL][64];
  mill_label_lattice lattice;
} models;

static void make(int n_gap, const int *gap, models *m)
{
  memset(m, 0, sizeof *m);
  assert_ok(MILL_ALLOC(1, &m->lib));
  m->lib->n_label = N_AXIS;
  snprintf(m->lib->label[0].name, MILL_MAX_NAME, "teff");
  snprintf(m->lib->label[1].name, MILL_MAX_NAME, "logg");
  snprintf(m->lib->label[2].name, MILL_MAX_NAME, "feh");
  for (int k = 0; k < N_ALL; k++) {
    const int i = (k * 77) % N_ALL; /* 77 and 120 have no common factor */
    int is_gap = 0;
    for (int g = 0; g < n_gap; g++)
      is_gap |= gap[g] == i;
    if (is_gap)
      continue;
    m->value[m->n * N_AXIS] = node[0][i / 20];
    m->value[m->n * N_AXIS + 1] = node[1][i / 4 % 5];
    m->value[m->n * N_AXIS + 2] = node[2][i % 4];
    snprintf(m->name[m->n++], 64, "m%d", i);
  }
  assert_ok(mill_library_make_labels(m->n, m->value, m->lib, m->mapped));
}

static void clear(models *m)
{
  mill_label_lattice_clear(&m->lattice);
  mill_library_clear(m->lib);
  mill_free(m->lib);
}

static int find(models *m)
{
  return mill_label_lattice_find(m->lib, m->n, m->mapped, (const char(*)[64])m->name, &m->lattice);
}

/* Values that are linear in each mapped label (and of the third power with cubic), at all nodes. */
static void fill_values(const mill_label_lattice *lattice, int cubic, int only_models,
                        double *value)
{
  for (int i = 0; i < N_ALL; i++) {
    const double x = lattice->node[0][i / 20], y = lattice->node[1][i / 4 % 5],
                 z = lattice->node[2][i % 4];
    const int known = !only_models || lattice->model[i] >= 0;
    value[i * N_OUT] = known ? 1 + 2 * x - y + 0.5 * z + x * y * (1 - 0.7 * z) : 1e9;
    value[i * N_OUT + 1] = known ? (cubic ? x * x * x - y * y + x * y * z * z : y * z - x) : -1e9;
  }
}

MILL_TEST(finds_models_and_gaps)
{
  static const int gap[] = {0, 47, 119};
  models m;
  make(3, gap, &m);
  assert_ok(find(&m));
  assert_int_equal(m.lattice.n_all, N_ALL);
  assert_int_equal(m.lattice.n_gap, 3);
  for (int i = 0; i < N_ALL; i++) {
    char name[64];
    snprintf(name, sizeof name, "m%d", i);
    const int model = m.lattice.model[i];
    if (i == 0 || i == 47 || i == 119)
      assert_int_equal(model, -1);
    else
      assert_string_equal(m.name[model], name);
  }
  for (int l = 0; l < N_AXIS; l++)
    assert_int_equal(m.lattice.n_node[l], n_node[l]);
  /* 46 lies beside the gap, 20 at an edge, 65 (node 3, 1, 1) inside */
  assert_false(mill_label_lattice_is_inner(&m.lattice, 46));
  assert_false(mill_label_lattice_is_inner(&m.lattice, 20));
  assert_true(mill_label_lattice_is_inner(&m.lattice, 65));
  assert_fails(mill_label_lattice_refuse_gaps(m.lib, &m.lattice), MILL_ERR_INPUT, "3 of 120 nodes");
  assert_non_null(strstr(mill_error_message(), "teff 4000 logg 1 feh -2; "));
  clear(&m);
}

/* What is linear along each label is filled exactly, wherever the gaps are, also a corner. */
MILL_TEST(multilinear_values_are_filled_exactly)
{
  static const int gap[] = {0, 1, 2, 4, 5, 6, 20, 21, 24, 47, 65, 66, 119, 118, 99};
  for (int n_gap = 1; n_gap <= 15; n_gap += 7) {
    models m;
    double value[N_ALL * N_OUT], want[N_ALL * N_OUT];
    make(n_gap, gap, &m);
    assert_ok(find(&m));
    fill_values(&m.lattice, 0, 0, want);
    for (int cubic = 0; cubic < 2; cubic++) {
      fill_values(&m.lattice, 0, 1, value);
      assert_ok(mill_label_lattice_fill(&m.lattice, cubic, N_OUT, value));
      for (int i = 0; i < N_ALL * N_OUT; i++)
        assert_close(value[i], want[i], 1e-11); /* sums of a few terms up to 10 */
    }
    clear(&m);
  }
}

/* Of the third power along Teff: exact where two nodes lie on either side, of feh one above. */
MILL_TEST(cubics_are_filled_exactly_inside)
{
  static const int gap[] = {50}; /* node 2, 2, 2 */
  models m;
  double value[N_ALL * N_OUT], want[N_ALL * N_OUT];
  make(1, gap, &m);
  assert_ok(find(&m));
  fill_values(&m.lattice, 1, 0, want);
  fill_values(&m.lattice, 1, 1, value);
  assert_ok(mill_label_lattice_fill(&m.lattice, 1, N_OUT, value));
  assert_close(value[100], want[100], 1e-12);
  assert_close(value[101], want[101], 1e-12);
  assert_ok(mill_label_lattice_fill(&m.lattice, 0, N_OUT, value));
  assert_true(fabs(value[101] - want[101]) > 1e-3); /* lines do not follow a cubic */
  clear(&m);
}

/* Beside a single node the value stays. */
MILL_TEST(short_lines)
{
  mill_library *lib = NULL;
  mill_label_lattice lattice;
  double value[4] = {3, 1e9, 5, 9};
  const double mapped[] = {0, 0, 1, 0, 1, 1}; /* no model at (0, 1) */
  static const char name[3][64] = {"a", "b", "c"};
  assert_ok(MILL_ALLOC(1, &lib));
  lib->n_label = 2;
  assert_ok(mill_label_lattice_find(lib, 3, mapped, name, &lattice));
  assert_int_equal(lattice.n_gap, 1);
  assert_ok(mill_label_lattice_fill(&lattice, 0, 1, value));
  assert_close(value[1], 6, 1e-15); /* between (0, 0) with 3 and (1, 1) with 9 */
  mill_label_lattice_clear(&lattice);
  mill_free(lib);
}

MILL_TEST(refuses)
{
  models m;
  make(0, NULL, &m);
  memcpy(m.mapped + 30, m.mapped + 60, N_AXIS * sizeof *m.mapped);
  assert_fails(find(&m), MILL_ERR_INPUT, "have the same labels");
  assert_null(m.lattice.model);
  for (int i = 0; i < m.n * N_AXIS; i++)
    m.mapped[i] += 1e-3 * sin(i); /* scattered */
  assert_fails(find(&m), MILL_ERR_INPUT, "radial");
  clear(&m);
}

MILL_TEST_MAIN(NULL, NULL)
