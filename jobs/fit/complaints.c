/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/fit/complaints.h"

#include <string.h>

#include "src/system/log.h"

enum { LIST_SIZE = MILL_MAX_ARM * (MILL_MAX_NAME + 2) };

/* Write the names of the arms whose bits are set, separated by commas. */
static const char *list_arms(const mill_library *lib, unsigned arms, char list[LIST_SIZE])
{
  size_t n = 0;
  list[0] = '\0';
  for (int a = 0; a < lib->n_arm; a++)
    if (arms & 1u << a)
      n += (size_t)snprintf(list + n, LIST_SIZE - n, "%s%s", n > 0 ? ", " : "", lib->arm[a].name);
  return list;
}

/* Warn that a spectrum lies outside the library.  The warning asks whether the wavelengths are in
 * another unit, or logarithms, if the spectrum would then lie inside. */
static void complain_of_range(const mill_complaints *c, const char *path, const mill_left_out *left)
{
  static const struct {
    double factor;
    const char *name;
  } units[] = {{10.0, "nm"}, {1e4, "um"}, {1e10, "m"}, {0.1, "tenths of A"}};
  double first = INFINITY, last = 0.0;
  const char *hint = "";
  const int n_digit = left->last_aa < 100.0 ? 3 : 0;
  char question[64];
  for (int a = 0; a < c->lib->n_arm; a++) {
    const mill_arm *arm = &c->lib->arm[a];
    first = fmin(first, exp(arm->ln_wave0));
    last = fmax(last, exp(arm->ln_wave0 + arm->ln_step * (double)(arm->n_pix - 1)));
  }
  const int is_outside = left->last_aa < first || left->first_aa > last;
  for (size_t i = 0; i < sizeof units / sizeof units[0] && is_outside && !hint[0]; i++)
    if (left->first_aa * units[i].factor < last && left->last_aa * units[i].factor > first) {
      snprintf(question, sizeof question, "; are these %s?", units[i].name);
      hint = question;
    }
  if (pow(10.0, left->first_aa) < last && pow(10.0, left->last_aa) > first)
    hint = "; are these log10 of A? Write the wavelengths in A instead";
  if (exp(left->first_aa) < last && exp(left->last_aa) > first)
    hint = "; are these ln of A? Write the wavelengths in A instead";
  mill_log_warning("%s: skipped: its spectra, %.*f to %.*f A, are outside all arms of the library "
                   "%s (%.0f to %.0f A, less a margin for the velocity limits)%s",
                   path, n_digit, left->first_aa, n_digit, left->last_aa, c->lib->path, first, last,
                   hint);
}

/* c->told: arms of the present file that were warned about, by reason. */
void mill_complain(mill_complaints *c, const mill_left_out *left)
{
  const char *path = c->inputs->file[left->i_file].path;
  const int lsf = c->config->lsf;
  char arms[LIST_SIZE];
  unsigned fresh[MILL_N_COMPLAINT], any = 0; /* fresh: arms that this file had no warning for */
  for (int why = 0; why < MILL_N_COMPLAINT; why++)
    any |= left->arms[why];
  if (!any)
    return;
  if (c->i_file != left->i_file)
    memset(c->told, 0, sizeof c->told);
  c->i_file = left->i_file;
  for (int why = 0; why < MILL_N_COMPLAINT; why++) {
    fresh[why] = left->arms[why] & ~c->told[why];
    c->told[why] |= left->arms[why];
  }
  if (fresh[MILL_NO_LSF])
    mill_log_warning("%s: skipped arm %s: it has no %s, which the library %s needs (set "
                     "resolving_power, or lsf: off to fit without)",
                     path, list_arms(c->lib, fresh[MILL_NO_LSF], arms),
                     lsf == MILL_LSF_MATRIX  ? "resolution matrix"
                     : lsf == MILL_LSF_SIGMA ? "sigma of the line-spread function"
                                             : "resolution matrix or other line-spread function",
                     c->lib->path);
  if (fresh[MILL_OUTSIDE])
    mill_log_warning("%s: skipped arm %s, which the library %s cannot fit (%s)", path,
                     list_arms(c->lib, fresh[MILL_OUTSIDE], arms), c->lib->path, left->reason);
  if (fresh[MILL_BEYOND])
    complain_of_range(c, path, left);
  if (fresh[MILL_ODD_LSF])
    mill_log_warning("%s: sigma of the line-spread function is %.3g A at %.0f A, where pixels are "
                     "%.3g A wide: implausible for a spectrograph; check its unit",
                     path, left->sigma_aa, left->sigma_wave_aa, left->pixel_aa);
  if (fresh[MILL_SHIFTED])
    mill_log_warning("%s: the resolution matrix moves light by %.1f pixels, which changes "
                     "velocities: are its diagonals in DESI's order?",
                     path, left->shift_pix);
}

void mill_complain_nonfinite(const mill_inputs *inputs, const mill_fit_result *result)
{
  for (int f = 0; f < inputs->n_file; f++) {
    const mill_input_file *file = &inputs->file[f];
    if (result->row >= file->row_start && result->row < file->row_start + file->n_row) {
      mill_log_warning("%s: row %lld of /fits (row %lld from this file) has NaN or infinity in its "
                       "fit and is flagged NONFINITE%s",
                       file->path, (long long)result->row,
                       (long long)(result->row - file->row_start),
                       result->status == MILL_STATUS_FITTED ? "" : " and not fitted");
      return;
    }
  }
}
