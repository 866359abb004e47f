/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/library/library_left_out.h"

#include <stdio.h>
#include <string.h>

#include "io/library/library_file.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/libraries/library_make.h"
#include "src/system/regular_file.h"

int mill_library_frame(const mill_grid_info *info, const char *path, mill_library *lib)
{
  lib->n_label = info->n_label;
  for (int l = 0; l < info->n_label; l++)
    snprintf(lib->label[l].name, sizeof lib->label[l].name, "%s", info->label[l]);
  lib->n_arm = info->n_arm;
  for (int a = 0; a < info->n_arm; a++) {
    const mill_grid_arm *from = &info->arm[a];
    mill_arm *arm = &lib->arm[a];
    snprintf(arm->name, sizeof arm->name, "%s", from->name);
    snprintf(arm->setup, sizeof arm->setup, "%s", from->name);
    snprintf(arm->sigma_origin, sizeof arm->sigma_origin, "%s", from->sigma_origin);
    snprintf(arm->source, sizeof arm->source, "%.100s", mill_base_name(path));
    arm->n_pix = from->n_pix;
    arm->ln_wave0 = from->ln_wave0;
    arm->ln_step = from->ln_step;
    arm->template_sigma_aa = from->template_sigma_aa;
    MILL_CHECK(mill_arm_make_waves(arm));
  }
  return MILL_OK;
}

int mill_without_report(int err)
{
  if (err != MILL_ERR_INPUT)
    return err;
  printf("no report: %s\n", mill_error_message());
  return MILL_OK;
}

int mill_library_keep(const char *path, int overwrite, mill_library *lib)
{
  MILL_CHECK(mill_library_write(path, lib, overwrite));
  mill_library_digest(lib, lib->hash);
  printf("%s: %d labels, %d arm%s, hash %s\n", path, lib->n_label, lib->n_arm,
         lib->n_arm == 1 ? "" : "s", lib->hash);
  return MILL_OK;
}

int mill_good_models(const mill_grid_info *info, const char *path, int unfinished, int *n,
                     int **row)
{
  int n_to_do = 0;
  *n = 0;
  MILL_CHECK(MILL_ALLOC(info->n_model, row));
  for (int i = 0; i < info->n_model; i++) {
    n_to_do += info->status[i] == MILL_GRID_TO_DO;
    if (info->status[i] == MILL_GRID_GOOD)
      (*row)[(*n)++] = i;
  }
  if (n_to_do > 0 && !unfinished)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: %d of its %d models are still to do; let its library build come to an end, or "
        "take --unfinished",
        path, n_to_do, info->n_model);
  return MILL_OK;
}

int mill_library_measure(const mill_library *lib, const mill_model_set *spectra, int n_thread,
                         int n_component, const char *how, int keep_error, mill_library *to)
{
  int err = MILL_OK;
  char *text = NULL;
  mill_library_report report = {0};
  if (keep_error && spectra->n < MILL_MODEL_ERROR_MIN)
    MILL_FAIL(MILL_ERR_INPUT,
              "%d models are left out, too few for a model error, which needs %d: leave out more, "
              "or measure none",
              spectra->n, MILL_MODEL_ERROR_MIN);
  printf("measuring it on %d models\n", spectra->n);
  fflush(stdout);
  MILL_TRY(mill_library_report_make(lib, spectra, n_thread, n_component, &report));
  MILL_TRY(mill_library_report_text(lib, &report, how, &text));
  fputs(text, stdout);
  for (int a = 0; a < lib->n_arm && keep_error; a++) {
    if (!report.error[a].fraction)
      MILL_FAIL(MILL_ERR_INPUT, "%d of %d models lie inside the hulls, too few for a model error",
                report.n, spectra->n);
    mill_model_error_clear(&to->arm[a].error);
    to->arm[a].error = report.error[a];
    memset(&report.error[a], 0, sizeof report.error[a]);
  }
  mill_free(to->report);
  to->report = text;
  text = NULL;
done:
  mill_free(text);
  mill_library_report_clear(&report);
  return err;
}

int mill_library_measure_rows(const mill_library *lib, mill_grid_file *grid,
                              const mill_grid_info *info, int n, const int *model, int n_thread,
                              int n_component, const char *how, int keep_error, mill_library *to)
{
  int err = MILL_OK, *row = NULL, has_continuum[MILL_MAX_ARM];
  const int n_used = n < MILL_REPORT_MAX ? n : MILL_REPORT_MAX;
  const size_t n_label = (size_t)info->n_label;
  mill_model_set set = {0};
  for (int a = 0; a < info->n_arm; a++)
    has_continuum[a] = info->arm[a].has_continuum;
  MILL_TRY(MILL_ALLOC(n_used, &row));
  MILL_TRY(mill_model_set_alloc(n_used, lib, has_continuum, &set));
  for (int i = 0; i < n_used; i++) {
    row[i] = model[(int64_t)i * n / n_used];
    memcpy(set.label + (size_t)i * n_label, info->value + (size_t)row[i] * n_label,
           n_label * sizeof *set.label);
    snprintf(set.name[i], sizeof set.name[i], "%s", info->name[row[i]]);
  }
  for (int a = 0; a < info->n_arm; a++)
    MILL_TRY(mill_grid_read(grid, a, n_used, row, set.flux[a], set.continuum[a]));
  MILL_TRY(mill_library_measure(lib, &set, n_thread, n_component, how, keep_error, to));
done:
  mill_free(row);
  mill_model_set_clear(&set);
  return err;
}
