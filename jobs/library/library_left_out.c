#include "jobs/library/library_left_out.h"

#include <stdio.h>
#include <string.h>

#include "kernels/base/error.h"
#include "src/libraries/library_make.h"
#include "src/system/regular_file.h"

int mill_library_frame(const mill_grid_info *info, const char *path, mill_library *lib)
{
  int err = MILL_OK;
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
    MILL_TRY(mill_arm_make_waves(arm));
  }
done:
  return err;
}

int mill_good_models(const mill_grid_info *info, const char *path, int unfinished, int *n,
                     int **row)
{
  int err = MILL_OK, n_to_do = 0;
  *n = 0;
  MILL_TRY(MILL_ALLOC(info->n_model, row));
  for (int i = 0; i < info->n_model; i++) {
    n_to_do += info->status[i] == MILL_GRID_TO_DO;
    if (info->status[i] == MILL_GRID_GOOD)
      (*row)[(*n)++] = i;
  }
  if (n_to_do > 0 && !unfinished)
    MILL_FAIL(MILL_ERR_INPUT,
              "%s: %d of its %d models are still to do; let its library build come to an end, or "
              "take --unfinished",
              path, n_to_do, info->n_model);
done:
  return err;
}

int mill_library_measure(const mill_library *lib, mill_grid_file *grid, const mill_grid_info *info,
                         int n, const int *model, int n_thread, int n_component, const char *how,
                         int keep_error, mill_library *to)
{
  int err = MILL_OK, *row = NULL;
  const int n_used = n < MILL_REPORT_MAX ? n : MILL_REPORT_MAX;
  const size_t n_label = (size_t)info->n_label, n_row = (size_t)n_used;
  double *label = NULL;
  char(*name)[64] = NULL, *text = NULL;
  float *flux[MILL_MAX_ARM] = {NULL}, *continuum[MILL_MAX_ARM] = {NULL};
  mill_left_out spectra = {.n = n_used};
  mill_library_report report = {0};
  if (keep_error && n_used < MILL_MODEL_ERROR_MIN)
    MILL_FAIL(MILL_ERR_INPUT,
              "%d models are left out, too few for a model error, which needs %d: leave out more, "
              "or measure none",
              n_used, MILL_MODEL_ERROR_MIN);
  MILL_TRY(MILL_ALLOC(n_row, &row));
  MILL_TRY(MILL_ALLOC(n_row * n_label, &label));
  MILL_TRY(MILL_ALLOC(n_row, &name));
  for (int i = 0; i < n_used; i++) {
    row[i] = model[(int64_t)i * n / n_used];
    memcpy(label + (size_t)i * n_label, info->value + (size_t)row[i] * n_label,
           n_label * sizeof *label);
    snprintf(name[i], sizeof name[i], "%s", info->name[row[i]]);
  }
  spectra.label = label;
  spectra.name = (const char(*)[64])name;
  for (int a = 0; a < info->n_arm; a++) {
    const size_t size = n_row * (size_t)info->arm[a].n_pix;
    MILL_TRY(MILL_ALLOC(size, &flux[a]));
    if (info->arm[a].has_continuum)
      MILL_TRY(MILL_ALLOC(size, &continuum[a]));
    MILL_TRY(mill_grid_read(grid, a, n_used, row, flux[a], continuum[a]));
    spectra.flux[a] = flux[a];
    spectra.continuum[a] = continuum[a];
  }
  printf("measuring it on %d models\n", n_used);
  fflush(stdout);
  MILL_TRY(mill_library_report_make(lib, &spectra, n_thread, n_component, &report));
  MILL_TRY(mill_library_report_text(lib, &report, how, &text));
  fputs(text, stdout);
  for (int a = 0; a < info->n_arm && keep_error; a++) {
    if (!report.error[a].fraction)
      MILL_FAIL(MILL_ERR_INPUT, "%d of %d models lie inside the hulls, too few for a model error",
                report.n, n_used);
    mill_model_error_clear(&to->arm[a].error);
    to->arm[a].error = report.error[a];
    memset(&report.error[a], 0, sizeof report.error[a]);
  }
  mill_free(to->report);
  to->report = text;
  text = NULL;
done:
  for (int a = 0; a < MILL_MAX_ARM; a++)
    MILL_FREE(flux[a], continuum[a]);
  MILL_FREE(row, label, name, text);
  mill_library_report_clear(&report);
  return err;
}
