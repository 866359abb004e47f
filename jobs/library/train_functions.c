/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/train_functions.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <mpi.h>

#include "io/library/grid_file.h"
#include "io/library/library_file.h"
#include "jobs/library/library_left_out.h"
#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/grid_emulators.h"
#include "src/ranks/mpi_context.h"
#include "src/system/file_roles.h"
#include "src/system/regular_file.h"

/* A grid file and its good models. */
typedef struct models {
  const char *path;
  mill_grid_file *file;
  mill_grid_info info;
  int n, *row;
} models;

static void models_clear(models *m)
{
  mill_grid_close(m->file);
  mill_grid_info_clear(&m->info);
  mill_free(m->row);
}

static int models_open(const char *path, int unfinished, models *m)
{
  m->path = path;
  MILL_CHECK(mill_grid_open(path, &m->file, &m->info));
  MILL_CHECK(mill_good_models(&m->info, path, unfinished, &m->n, &m->row));
  if (m->n == 0)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: none of its %d models is good", path, m->info.n_model);
  printf("%s: %d models, %d arm%s", path, m->n, m->info.n_arm, m->info.n_arm == 1 ? "" : "s");
  if (m->n < m->info.n_model)
    printf("; %d bad or missing ones are skipped", m->info.n_model - m->n);
  printf("\n");
  return MILL_OK;
}

static int read_ln_flux(void *from, int arm, int n, const int *row, float *ln_flux)
{
  const models *m = from;
  MILL_CHECK(mill_grid_read(m->file, arm, n, row, ln_flux, NULL));
  for (size_t i = 0; i < (size_t)n * (size_t)m->info.arm[arm].n_pix; i++)
    ln_flux[i] = logf(ln_flux[i]); /* what is read is above 0 */
  return MILL_OK;
}

/* Models of the file, without those of left_out [m->n] (NULL: all), for the emulators; arrays to be
   freed by the caller. */
typedef struct selection {
  mill_grid_models models;
  double *value;
  char (*name)[64];
  int *row, *rest, n_rest; /* of the file: those taken, and the others */
} selection;

static void selection_clear(selection *s)
{
  MILL_FREE(s->value, s->name, s->row, s->rest);
}

static int select_models(models *m, const unsigned char *left_out, selection *s)
{
  int n = 0;
  const size_t n_label = (size_t)m->info.n_label;
  MILL_CHECK(MILL_ALLOC((size_t)m->n * n_label, &s->value));
  MILL_CHECK(MILL_ALLOC(m->n, &s->name));
  MILL_CHECK(MILL_ALLOC(m->n, &s->row));
  MILL_CHECK(MILL_ALLOC(m->n, &s->rest));
  for (int i = 0; i < m->n; i++) {
    if (left_out && left_out[i]) {
      s->rest[s->n_rest++] = m->row[i];
      continue;
    }
    memcpy(s->value + (size_t)n * n_label, m->info.value + (size_t)m->row[i] * n_label,
           n_label * sizeof *s->value);
    snprintf(s->name[n], sizeof s->name[n], "%s", m->info.name[m->row[i]]);
    s->row[n++] = m->row[i];
  }
  s->models = (mill_grid_models){.n = n,
                                 .value = s->value,
                                 .name = (const char(*)[64])s->name,
                                 .row = s->row,
                                 .read = read_ln_flux,
                                 .from = m};
  return MILL_OK;
}

/* Have the models of the report the labels and arms of the library's? */
static int check_validation(const models *m, const models *other)
{
  const mill_grid_info *a = &m->info, *b = &other->info;
  int same = a->n_label == b->n_label && a->n_arm == b->n_arm;
  for (int l = 0; same && l < a->n_label; l++)
    same = strcmp(a->label[l], b->label[l]) == 0;
  if (!same)
    return MILL_ERROR(MILL_ERR_INPUT,
                      "--validation %s: its labels or number of arms are not those of %s",
                      other->path, m->path);
  for (int i = 0; i < a->n_arm; i++) {
    const mill_grid_arm *p = &a->arm[i], *q = &b->arm[i];
    if (p->n_pix != q->n_pix || fabs(p->ln_wave0 - q->ln_wave0) > 1e-6 * p->ln_step ||
        fabs(p->ln_step - q->ln_step) * p->n_pix > 1e-6 * p->ln_step)
      return MILL_ERROR(
          MILL_ERR_INPUT,
          "--validation %s: the pixels of its arm %s are not those of %s; build it with the "
          "same arms",
          other->path, q->name, m->path);
    if (fabs(p->template_sigma_aa - q->template_sigma_aa) > 1e-6 * fabs(p->template_sigma_aa))
      return MILL_ERROR(
          MILL_ERR_INPUT,
          "--validation %s: its arm %s has a sigma of %g A, that of %s %g A; build it with the "
          "same arms",
          other->path, q->name, q->template_sigma_aa, m->path, p->template_sigma_aa);
  }
  return MILL_OK;
}

void mill_print_grid_facts(int way, const mill_library *lib, const mill_grid_facts *facts)
{
  if (way == MILL_WAY_RADIAL) {
    printf("radial functions, smoothing %.3g to %.3g\n", facts->smooth_min, facts->smooth_max);
  } else {
    printf("%s over", way == MILL_WAY_LINEAR ? "linear interpolation" : "cubic splines");
    for (int l = 0; l < lib->n_label; l++)
      printf("%s %d of %s", l ? "," : "", facts->n_node[l], lib->label[l].name);
    printf("; %d nodes filled from their neighbours\n", facts->n_filled);
  }
  for (int a = 0; a < lib->n_arm; a++)
    printf("  %-8s %d components, which leave %.2g %% (rms) of the flux of the worst model\n",
           lib->arm[a].name, facts->n_component[a], 100 * facts->left[a]);
  fflush(stdout);
}

/* The report from models left out, by a library that is made without them. */
static int report_left_out(const mill_train_options *o, models *m, mill_library *lib)
{
  int err = MILL_OK, n_out = 0;
  unsigned char *left_out = NULL;
  char how[512];
  selection all = {0}, rest = {0};
  mill_library *without = NULL;
  mill_grid_facts facts;
  mill_grid_settings settings = o->functions;
  const int most = (int)(o->left_out * m->n + 0.5);
  MILL_TRY(MILL_ALLOC(m->n, &left_out));
  MILL_TRY(MILL_ALLOC(1, &without));
  MILL_TRY(select_models(m, NULL, &all));
  MILL_TRY(mill_grid_choose_left_out(settings.way, &all.models, lib,
                                     most < MILL_REPORT_MAX ? most : MILL_REPORT_MAX, o->seed,
                                     left_out, &n_out));
  if (n_out == 0)
    MILL_FAIL(MILL_ERR_INPUT,
              "none of %d models that can be left out is surrounded by others: give a larger "
              "--left-out or --validation",
              m->n);
  MILL_TRY(select_models(m, left_out, &rest));
  MILL_TRY(mill_library_frame(&m->info, m->path, without));
  settings.fill_gaps = 1; /* the nodes of those left out */
  MILL_TRY(mill_grid_emulators_make(&settings, &rest.models, without, &facts));
  snprintf(how, sizeof how,
           "of %d models; measured with a library made without them%s; this one uses all", m->n,
           settings.way == MILL_WAY_RADIAL ? "" : ", whose nodes are filled from their neighbours");
  MILL_TRY(mill_library_measure_rows(
      without, m->file, &m->info, rest.n_rest, rest.rest, settings.n_thread,
      o->n_error < 0 ? MILL_MODEL_ERROR_COMPONENT : o->n_error, how, o->n_error >= 0, lib));
done:
  mill_free(left_out);
  selection_clear(&all);
  selection_clear(&rest);
  mill_library_clear(without);
  mill_free(without);
  return o->n_error < 0 ? mill_without_report(err) : err;
}

/* The report from models of another file. */
static int report_validation(const mill_train_options *o, const models *m, mill_library *lib)
{
  int err = MILL_OK;
  char how[512];
  models other = {0};
  MILL_TRY(models_open(o->validation, 1, &other));
  MILL_TRY(check_validation(m, &other));
  snprintf(how, sizeof how, "of %.200s; the library is made of %d models",
           mill_base_name(o->validation), m->n);
  MILL_TRY(mill_library_measure_rows(
      lib, other.file, &other.info, other.n, other.row, o->functions.n_thread,
      o->n_error < 0 ? MILL_MODEL_ERROR_COMPONENT : o->n_error, how, o->n_error >= 0, lib));
done:
  models_clear(&other);
  return err;
}

static int make(const mill_train_options *o, mill_library *lib)
{
  int err = MILL_OK;
  models m = {0};
  selection all = {0};
  mill_grid_facts facts;
  const double start_s = mill_wall_s();
  MILL_TRY(models_open(o->input, o->unfinished, &m));
  MILL_TRY(select_models(&m, NULL, &all));
  MILL_TRY(mill_library_frame(&m.info, o->input, lib));
  MILL_TRY(mill_grid_emulators_make(&o->functions, &all.models, lib, &facts));
  printf("made in %.1f s\n", mill_wall_s() - start_s);
  mill_print_grid_facts(o->functions.way, lib, &facts);
  for (int a = 0; a < lib->n_arm; a++)
    snprintf(lib->arm[a].revision, sizeof lib->arm[a].revision, "%s",
             mill_train_emulator_words[o->emulator]);
  snprintf(lib->name, sizeof lib->name, "%s of %.100s", mill_train_emulator_words[o->emulator],
           mill_base_name(o->input));
  if (o->validation)
    MILL_TRY(report_validation(o, &m, lib));
  else if (o->left_out > 0)
    MILL_TRY(report_left_out(o, &m, lib));
  if (lib->report)
    printf("made and measured in %.1f s\n", mill_wall_s() - start_s);
done:
  models_clear(&m);
  selection_clear(&all);
  return err;
}

static int prepare(mill_train_options *o)
{
  mill_file_roles roles = {0};
  MILL_CHECK(mill_file_roles_write(&roles, "--output", o->output));
  MILL_CHECK(mill_file_roles_read(&roles, "the grid file", o->input));
  MILL_CHECK(mill_file_roles_read(&roles, "--validation", o->validation));
  MILL_CHECK(mill_library_writable(o->output, o->overwrite));
  MILL_CHECK(mill_mpi_alone_threads(&o->n_thread));
  o->functions.n_thread = o->n_thread;
  return MILL_OK;
}

int mill_train_functions(mill_train_options *o)
{
  int err = MILL_OK;
  mill_library *lib = NULL;
  MILL_TRY(prepare(o));
  MILL_TRY(MILL_ALLOC(1, &lib));
  MILL_TRY(make(o, lib));
  MILL_TRY(mill_library_keep(o->output, o->overwrite, lib));
done:
  mill_library_clear(lib);
  mill_free(lib);
  return err;
}
