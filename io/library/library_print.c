/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "io/library/library_parts.h"
#include "kernels/base/error.h"
#include "kernels/math/hull.h"

static void print_label(const mill_label *label, FILE *out)
{
  fprintf(out, "  %-8s %-8s %g to %g%s%s, typical error %g; mapped by %s%.9g, / %.9g\n",
          label->name, label->column, label->min, label->max, *label->unit ? " " : "", label->unit,
          label->scale, label->mapping == MILL_MAP_LOG10 ? "log10, - " : "- ", label->mean,
          label->std);
}

/* Nodes of each label with the range that they span, in the label's unit. */
static void print_grid(const mill_library *lib, const mill_spline_grid *grid, FILE *out)
{
  fprintf(out, "    nodes");
  for (int i = 0; i < grid->n_axis; i++) {
    const mill_label *label = &lib->label[i];
    fprintf(out, "%s %s %d from %.6g to %.6g", i ? "," : "", label->name, grid->n_node[i],
            mill_label_unmap(label, grid->knot[i][0]),
            mill_label_unmap(label, grid->knot[i][grid->n_node[i]]));
  }
  fprintf(out, "; %d components\n", grid->n_out);
}

/* Range of the centers in each label and the length along it, in mapped units. */
static void print_rbf(const mill_library *lib, const mill_rbf *rbf, FILE *out)
{
  fprintf(out, "    centers");
  for (int i = 0; i < rbf->n_axis; i++) {
    double low = INFINITY, high = -INFINITY;
    for (int j = 0; j < rbf->n_center; j++) {
      const double x = rbf->center[(size_t)j * (size_t)rbf->n_axis + (size_t)i];
      low = fmin(low, x);
      high = fmax(high, x);
    }
    fprintf(out, "%s %s from %.6g to %.6g (length %.4g)", i ? "," : "", lib->label[i].name,
            mill_label_unmap(&lib->label[i], low), mill_label_unmap(&lib->label[i], high),
            rbf->length[i]);
  }
  fprintf(out, "; polynomial of degree %d; %d components\n", rbf->degree, rbf->n_out);
}

static void print_arm(const mill_library *lib, const mill_arm *arm, FILE *out)
{
  const mill_emulator *net = &arm->emulator;
  fprintf(out, "  %s (%s): %.3f to %.3f A, %d pixels of %.4f km/s\n", arm->name, arm->setup,
          arm->wave_aa[0], arm->wave_aa[arm->n_pix - 1], arm->n_pix, MILL_C_KM_S * arm->ln_step);
  if (arm->template_sigma_aa < 0)
    fprintf(out, "    templates at the instrument's resolution");
  else
    fprintf(out, "    templates at sigma %g A, for spectra with a resolution matrix",
            arm->template_sigma_aa);
  fprintf(out, "%s%s\n", *arm->sigma_origin ? ": " : "", arm->sigma_origin);
  static const char *const kind_text[MILL_LIBRARY_N_KIND] = {[MILL_EMULATOR_MLP] = "SiLU",
                                                             [MILL_EMULATOR_GRID] = "cubic splines",
                                                             [MILL_EMULATOR_RBF] =
                                                                 "radial functions"};
  const int is_grid = net->kind == MILL_EMULATOR_GRID, is_rbf = net->kind == MILL_EMULATOR_RBF;
  size_t n_number = is_grid ? mill_library_grid_size(&net->grid)
                            : (is_rbf ? mill_library_rbf_size(&net->rbf) : 0);
  fprintf(out, "    emulator ");
  for (int i = 0; is_grid && i < net->grid.n_axis; i++)
    fprintf(out, "%s%d", i ? "x" : "grid ", net->grid.n_node[i]);
  if (is_rbf)
    fprintf(out, "rbf %d+%d", net->rbf.n_center, net->rbf.n_poly);
  fprintf(out, "%s%d", is_grid || is_rbf ? "-" : "", net->n_in[0]);
  for (int i = 0; i < net->n_layer; i++) {
    fprintf(out, "-%d", net->n_out[i]);
    n_number += (size_t)net->n_out[i] * (size_t)(net->n_in[i] + 1);
  }
  fprintf(out, ", %s, %s, %zu parameters\n",
          is_grid && net->grid.linear ? "linear" : kind_text[net->kind],
          net->log_flux ? "log flux" : "flux", n_number);
  if (is_grid)
    print_grid(lib, &net->grid, out);
  if (is_rbf)
    print_rbf(lib, &net->rbf, out);
  const mill_model_error *error = &arm->error;
  if (error->fraction) {
    double sum = 0;
    for (int i = 0; i < arm->n_pix; i++)
      sum += (double)error->fraction[i] * (double)error->fraction[i];
    fprintf(out,
            "    model error: %.3f %% of the flux, correlated over %.1f pixels, and %d components",
            100 * sqrt(sum / arm->n_pix), error->correlation, error->n_component);
    for (int j = 0; j < error->n_component; j++)
      fprintf(out, "%s %.3f", j ? "," : " of", 100 * error->sigma[j]);
    fprintf(out, "%s\n", error->n_component ? " %" : "");
  }
  if (*arm->source)
    fprintf(out, "    from %s, revision %s\n", arm->source,
            *arm->revision ? arm->revision : "none");
}

int mill_library_print(const mill_library *lib, FILE *out)
{
  fprintf(out, "library %s\n", *lib->name ? lib->name : "(no name)");
  if (*lib->path)
    fprintf(out, "file    %s\n", lib->path);
  fprintf(out, "hash    %s\n", lib->hash);
  fprintf(out, "labels  %d\n", lib->n_label);
  for (int i = 0; i < lib->n_label; i++)
    print_label(&lib->label[i], out);
  fprintf(out, "hulls   %d\n", lib->n_hull);
  for (int i = 0; i < lib->n_hull; i++) {
    const mill_hull *hull = &lib->hull[i];
    fprintf(out, "  ");
    for (int j = 0; j < hull->n_label; j++)
      fprintf(out, "%s%s", j ? ", " : "", lib->label[hull->label[j]].name);
    fprintf(out, ": %d facets\n", hull->n_facet);
  }
  fprintf(out, "arms    %d\n", lib->n_arm);
  for (int i = 0; i < lib->n_arm; i++)
    print_arm(lib, &lib->arm[i], out);
  fprintf(out, "guess   %d templates, v sin i", lib->n_guess);
  for (int i = 0; i < lib->n_guess_vsini; i++)
    fprintf(out, "%s %g", i ? "," : "", lib->guess_vsini_km_s[i]);
  fprintf(out, " km/s\n");
  if (lib->report)
    fputs(lib->report, out);
  if (fflush(out) != 0 || ferror(out))
    return MILL_ERROR(MILL_ERR_OUTPUT, "the description of the library cannot be printed: %s",
                      strerror(errno));
  return MILL_OK;
}
