#include <string.h>

#include "io/files/sha256.h"
#include "io/library/library_parts.h"

static void digest_u64(mill_sha256 *sha, uint64_t x)
{
  unsigned char byte[8];
  for (int i = 0; i < 8; i++)
    byte[i] = (unsigned char)(x >> (8 * i));
  mill_sha256_update(sha, byte, sizeof byte);
}

static void digest_text(mill_sha256 *sha, const char *text)
{
  const size_t n = strlen(text);
  digest_u64(sha, n);
  mill_sha256_update(sha, text, n);
}

static void digest_f64(mill_sha256 *sha, size_t n, const double *x)
{
  for (size_t i = 0; i < n; i++) {
    uint64_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    digest_u64(sha, bits);
  }
}

static void digest_f32(mill_sha256 *sha, size_t n, const float *x)
{
  unsigned char byte[1024];
  for (size_t i = 0; i < n;) {
    size_t n_byte = 0;
    for (; i < n && n_byte < sizeof byte; i++) {
      uint32_t bits;
      memcpy(&bits, &x[i], sizeof bits);
      for (int j = 0; j < 4; j++)
        byte[n_byte++] = (unsigned char)(bits >> (8 * j));
    }
    mill_sha256_update(sha, byte, n_byte);
  }
}

static void digest_grid(mill_sha256 *sha, int format, const mill_spline_grid *grid)
{
  const int order = mill_spline_grid_order(grid);
  if (format >= MILL_LIBRARY_LINEAR)
    digest_u64(sha, (uint64_t)(order - 1));
  digest_u64(sha, (uint64_t)grid->n_axis);
  for (int i = 0; i < grid->n_axis; i++) {
    digest_u64(sha, (uint64_t)grid->n_node[i]);
    digest_f64(sha, (size_t)(grid->n_node[i] + order), grid->knot[i]);
  }
  digest_u64(sha, (uint64_t)grid->n_out);
  digest_f32(sha, mill_library_grid_size(grid), grid->coef);
}

static void digest_rbf(mill_sha256 *sha, const mill_rbf *rbf)
{
  digest_u64(sha, (uint64_t)rbf->n_axis);
  digest_u64(sha, (uint64_t)rbf->n_center);
  digest_u64(sha, (uint64_t)rbf->degree);
  digest_f64(sha, (size_t)rbf->n_axis, rbf->length);
  digest_f64(sha, (size_t)rbf->n_center * (size_t)rbf->n_axis, rbf->center);
  digest_u64(sha, (uint64_t)rbf->n_out);
  digest_f32(sha, mill_library_rbf_size(rbf), rbf->coef);
}

static void digest_error(mill_sha256 *sha, size_t n_pix, const mill_model_error *error)
{
  digest_u64(sha, error->fraction ? 1 : 0);
  if (!error->fraction)
    return;
  const size_t n = (size_t)error->n_component;
  digest_f32(sha, n_pix, error->fraction);
  digest_f64(sha, 1, &error->correlation);
  digest_u64(sha, n);
  digest_f64(sha, n, error->sigma);
  digest_f32(sha, n * n_pix, error->component);
}

void mill_library_digest(const mill_library *lib, char hex[65])
{
  mill_sha256 sha;
  const int format = mill_library_format(lib);
  mill_sha256_init(&sha);
  static const char *const contents[MILL_LIBRARY_FORMAT + 1] = {
      "", "starmill library contents 1", "starmill library contents 2",
      "starmill library contents 3", "starmill library contents 4"};
  digest_text(&sha, contents[format]);
  digest_u64(&sha, (uint64_t)lib->n_label);
  for (int i = 0; i < lib->n_label; i++) {
    const mill_label *label = &lib->label[i];
    const double number[] = {label->mean, label->std, label->min, label->max, label->scale};
    digest_text(&sha, label->name);
    digest_text(&sha, label->column);
    digest_text(&sha, label->unit);
    digest_u64(&sha, (uint64_t)label->mapping);
    digest_f64(&sha, sizeof number / sizeof *number, number);
  }
  digest_u64(&sha, (uint64_t)lib->n_hull);
  for (int i = 0; i < lib->n_hull; i++) {
    const mill_hull *hull = &lib->hull[i];
    digest_u64(&sha, (uint64_t)hull->n_label);
    for (int j = 0; j < hull->n_label; j++)
      digest_u64(&sha, (uint64_t)hull->label[j]);
    digest_u64(&sha, (uint64_t)hull->n_facet);
    digest_f64(&sha, (size_t)hull->n_facet * (size_t)(hull->n_label + 1), hull->facet);
  }
  digest_u64(&sha, (uint64_t)lib->n_arm);
  for (int i = 0; i < lib->n_arm; i++) {
    const mill_arm *arm = &lib->arm[i];
    const mill_emulator *net = &arm->emulator;
    const double number[] = {arm->ln_wave0, arm->ln_step, arm->template_sigma_aa};
    digest_text(&sha, arm->name);
    digest_text(&sha, arm->setup);
    digest_u64(&sha, (uint64_t)arm->n_pix);
    digest_f64(&sha, sizeof number / sizeof *number, number);
    digest_f64(&sha, (size_t)arm->n_pix, arm->wave_aa);
    digest_u64(&sha, (uint64_t)net->log_flux);
    if (format >= MILL_LIBRARY_KINDS)
      digest_u64(&sha, (uint64_t)net->kind);
    if (net->kind == MILL_EMULATOR_GRID)
      digest_grid(&sha, format, &net->grid);
    if (net->kind == MILL_EMULATOR_RBF)
      digest_rbf(&sha, &net->rbf);
    digest_u64(&sha, (uint64_t)net->n_layer);
    for (int j = 0; j < net->n_layer; j++) {
      digest_u64(&sha, (uint64_t)net->n_in[j]);
      digest_u64(&sha, (uint64_t)net->n_out[j]);
      digest_f32(&sha, (size_t)net->n_out[j] * (size_t)net->n_in[j], net->weight[j]);
      digest_f32(&sha, (size_t)net->n_out[j], net->bias[j]);
    }
    if (format >= MILL_LIBRARY_ERRORS)
      digest_error(&sha, (size_t)arm->n_pix, &arm->error);
  }
  digest_u64(&sha, (uint64_t)lib->n_guess);
  digest_f64(&sha, (size_t)lib->n_guess * (size_t)lib->n_label, lib->guess_label);
  digest_u64(&sha, (uint64_t)lib->n_guess_vsini);
  digest_f64(&sha, (size_t)lib->n_guess_vsini, lib->guess_vsini_km_s);
  mill_sha256_final(&sha, hex);
}
