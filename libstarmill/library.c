/* SPDX-License-Identifier: BSD-3-Clause */
#include "libstarmill/handle.h"

#include <ctype.h>

#include "io/catalog/prior_table.h"
#include "io/library/library_file.h"
#include "io/surveys/formats.h"
#include "src/system/version.h"
#include "src/config/arms.h"

_Static_assert(STARMILL_CONFIG == (int)MILL_ERR_CONFIG && STARMILL_INPUT == (int)MILL_ERR_INPUT &&
                   STARMILL_RANGE == (int)MILL_ERR_RANGE &&
                   STARMILL_BACKEND == (int)MILL_ERR_BACKEND &&
                   STARMILL_INTERNAL == (int)MILL_ERR_INTERNAL,
               "the public codes are the program's");

static pthread_mutex_t hdf5_mutex = PTHREAD_MUTEX_INITIALIZER;

/* The calling program's HDF5 error handler, restored on unlock: our readers switch messages off. */
static struct {
  H5E_auto2_t print;
  void *data;
} caller;

int mill_hdf5_lock(int is_needed)
{
  if (is_needed) {
    pthread_mutex_lock(&hdf5_mutex);
    if (H5Eget_auto2(H5E_DEFAULT, &caller.print, &caller.data) < 0)
      caller.print = NULL;
  }
  return is_needed;
}

void mill_hdf5_unlock(const int *is_locked)
{
  if (*is_locked) {
    H5Eset_auto2(H5E_DEFAULT, caller.print, caller.data);
    pthread_mutex_unlock(&hdf5_mutex);
  }
}

int mill_tell(int err, starmill_error *error)
{
  if (error) {
    error->code = err;
    snprintf(error->message, sizeof error->message, "%s",
             err == MILL_OK ? "" : mill_error_message());
  }
  return err;
}

int mill_refuse_null(const char *function, const char *names, const void *const *pointer, size_t n,
                     starmill_error *error)
{
  for (size_t i = 0; i < n; i++, names += strcspn(names, ",") + 2)
    if (!pointer[i])
      return mill_tell(
          MILL_ERROR(MILL_ERR_USAGE, "%s: %.*s is NULL", function, (int)strcspn(names, ","), names),
          error);
  return MILL_OK;
}

int mill_check_index(const char *what, int64_t i, int64_t n)
{
  if (i < 0 || i >= n)
    return MILL_ERROR(MILL_ERR_USAGE, "%s %lld is out of range; there are %lld, counted from 0",
                      what, (long long)i, (long long)n);
  return MILL_OK;
}

const char *starmill_version(void)
{
  return mill_version();
}

const char *starmill_revision(void)
{
  return mill_version_revision();
}

/* Read the configuration, and refuse keys that only starmill fit can follow. Set values that depend
 * on the key format, and the default of one thread. */
static int read_config(starmill_library *h, const char *config)
{
  int n_format;
  mill_config_default(&h->config);
  if (config)
    MILL_CHECK(mill_config_read_text(&h->config, "the configuration", config, strlen(config)));
  if (strcmp(h->config.backend, "cuda+cpu") == 0)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "backend: cuda+cpu is for several ranks of starmill fit; give cpu or cuda");
  if (h->config.start[0])
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "start: leave this key out; give starts to the function starmill_fit");
  if (h->config.fit.epochs)
    return MILL_ERROR(MILL_ERR_CONFIG, "epochs: only starmill fit has them; leave the key out");
  if (h->config.prior_table[0])
    return MILL_ERROR(MILL_ERR_CONFIG, "prior_table: the table is for starmill fit; give priors to "
                                       "starmill_library_constrain");
  const mill_format *format = NULL, *const *formats = mill_formats(&n_format);
  if (strcmp(h->config.format, "auto") != 0 && h->config.fit.lsf_width_error < 0.0) {
    MILL_CHECK(mill_format_find(h->config.format, formats, n_format, "", NULL, &format));
    h->config.fit.lsf_width_error = format->lsf_width_error; /* for spectra from arrays, too */
  }
  MILL_CHECK(mill_thread_check_number(h->config.n_thread));
  if (h->config.n_thread == 0)
    h->config.n_thread = 1;
  if (h->config.wave_mask_auto && strcmp(h->config.format, "desi") != 0)
    h->config.fit.n_wave_mask = 0; /* the automatic mask is for DESI's dichroic */
  return MILL_OK;
}

/* Read the library.  As in a fit, cut it to the configured arms or the named format's cameras. */
static int read_library(const char *path, mill_config *c, mill_library *lib)
{
  MILL_HDF5_LOCKED;
  MILL_CHECK(mill_library_read(path, lib));
  MILL_CHECK(mill_format_take_cameras(c->format, lib, c));
  mill_config_choose_sampling(lib, 1, c);
  MILL_CHECK(mill_config_cut_arms(c, lib));
  return mill_library_add_sky(c->sky_components, lib, c->sky_hash);
}

static void destroy(starmill_library *h)
{
  if (!h)
    return;
  mill_pipeline_destroy(h->pipeline);
  mill_library_clear(&h->lib);
  mill_config_clear(&h->config);
  pthread_mutex_destroy(&h->mutex);
  mill_free(h);
}

MILL_CLOSER(starmill_library, destroy)

/* Read configuration and library, and create the pipeline. */
static int open_library(const char *path, const char *config, starmill_library **library)
{
  MILL_AT_END(destroy_at) starmill_library *h = NULL;
  MILL_CHECK(MILL_ALLOC(1, &h));
  mill_config *c = &h->config;
  pthread_mutex_init(&h->mutex, NULL);
  h->n_user = 1;
  MILL_CHECK(read_config(h, config));
  MILL_CHECK(read_library(path, c, &h->lib));
  for (int a = 0; a < h->lib.n_arm; a++) { /* name each velocity offset after its arm */
    offset_names *o = &h->offset[a];
    char arm[MILL_MAX_NAME]; /* a copy, since gcc with sanitizers suspects an overlap within h */
    memcpy(arm, h->lib.arm[a].name, sizeof arm);
    snprintf(o->name, sizeof o->name, "offset_%s", arm);
    snprintf(o->column, sizeof o->column, "VRAD_OFFSET_%s", arm);
    for (char *at = o->column; *at; at++)
      *at = (char)toupper((unsigned char)*at);
  }
  MILL_CHECK(mill_config_bind(c, &h->lib, 1));
  MILL_CHECK(mill_prior_check(&h->lib, 1, &c->fit, 0));
  mill_config_arms(c, &h->lib, h->spectra.arm_wanted);
  h->spectra.lib = &h->lib;
  h->spectra.config = c;
  h->spectra.limits = (mill_open_limits){c->gzip_limit_mib, c->scratch};
  h->set = c->fit;
  h->set.resolution = c->lsf == MILL_LSF_OFF ? MILL_RES_NONE : MILL_RES_AUTO;
  MILL_CHECK(mill_backend_find(c->backend, &h->backend));
  const int n_slot = c->n_slot > 0 ? c->n_slot : mill_backend_slots(h->backend, c->n_thread);
  MILL_CHECK(mill_pipeline_create(&h->lib, 1, &h->set, h->backend, n_slot, c->n_thread,
                                  MILL_MODELS_WITH_PARTS, &h->pipeline));
  return MILL_GIVE(&h, library);
}

int starmill_library_open(const char *path, const char *config, starmill_library **library,
                          starmill_error *error)
{
  MILL_REFUSE_NULL(error, path, library);
  return mill_tell(open_library(path, config, library), error);
}

int starmill_library_check(const char *path, const void *image, size_t n_byte, char *hash,
                           starmill_error *error)
{
  MILL_REFUSE_NULL(error, path, hash);
  MILL_HDF5_LOCKED;
  return mill_tell(mill_library_check_file(path, image, n_byte, hash), error);
}

void mill_library_release(starmill_library *h)
{
  const int n_left = --h->n_user;
  pthread_mutex_unlock(&h->mutex);
  if (n_left == 0)
    destroy(h);
}

void starmill_library_close(starmill_library *library)
{
  if (!library)
    return;
  pthread_mutex_lock(&library->mutex);
  mill_library_release(library);
}

int mill_n_par(const starmill_library *h)
{
  return MILL_PAR_LABEL0 + h->lib.n_label + (h->set.velocity_offsets ? h->lib.n_arm - 1 : 0);
}

/* ---- content ---- */

int starmill_library_n_par(const starmill_library *library)
{
  return library ? mill_n_par(library) : 0;
}

int starmill_library_n_label(const starmill_library *library)
{
  return library ? library->lib.n_label : 0;
}

int starmill_library_n_arm(const starmill_library *library)
{
  return library ? library->lib.n_arm : 0;
}

const char *starmill_library_hash(const starmill_library *library)
{
  return library ? library->lib.hash : "";
}

const char *starmill_library_backend(const starmill_library *library)
{
  return library ? library->backend->name : "";
}

/* Parameters are, in order, VRAD, VSINI, labels, velocity offsets of the arms after the first. */
starmill_parameter mill_parameter(const starmill_library *h, int i_par)
{
  const mill_fit_settings *set = &h->set;
  const int i_label = i_par - MILL_PAR_LABEL0, i_arm = i_label - h->lib.n_label + 1;
  const double most = set->max_vel_km_s - set->min_vel_km_s; /* limit of an arm's offset */
  if (i_par == MILL_PAR_VRAD)
    return (starmill_parameter){"vrad", "VRAD", "km/s", set->min_vel_km_s, set->max_vel_km_s};
  if (i_par == MILL_PAR_VSINI)
    return (starmill_parameter){"vsini", "VSINI", "km/s", set->min_vsini_km_s, set->max_vsini_km_s};
  if (i_arm < 1) {
    const mill_label *l = &h->lib.label[i_label];
    return (starmill_parameter){l->name, l->column, l->unit, l->min, l->max};
  }
  return (starmill_parameter){h->offset[i_arm].name, h->offset[i_arm].column, "km/s", -most, most};
}

int starmill_library_parameter(const starmill_library *library, int i_par,
                               starmill_parameter *parameter, starmill_error *error)
{
  MILL_REFUSE_NULL(error, library, parameter);
  const int err = mill_check_index("parameter", i_par, mill_n_par(library));
  if (err == MILL_OK)
    *parameter = mill_parameter(library, i_par);
  return mill_tell(err, error);
}

int starmill_library_arm(const starmill_library *library, int i_arm, starmill_arm *arm,
                         starmill_error *error)
{
  MILL_REFUSE_NULL(error, library, arm);
  const int err = mill_check_index("arm", i_arm, library->lib.n_arm);
  if (err != MILL_OK)
    return mill_tell(err, error);
  const mill_arm *a = &library->lib.arm[i_arm];
  *arm = (starmill_arm){
      .name = a->name, /* the Doppler factor of velocity v is exp(atanh(v / c)) */
      .min_wave = a->wave_aa[0] * exp(atanh(library->set.max_vel_km_s / MILL_C_KM_S)),
      .max_wave = a->wave_aa[a->n_pix - 1] * exp(atanh(library->set.min_vel_km_s / MILL_C_KM_S))};
  return mill_tell(MILL_OK, error);
}

/* ---- fixed parameters and priors ---- */

static mill_named_value named(const starmill_library *h, int i_par, double value, double sigma)
{
  mill_named_value item = {.value = value, .sigma = sigma};
  snprintf(item.name, sizeof item.name, "%s", mill_parameter(h, i_par).name);
  return item;
}

/* Replace the configuration's fixed parameters and priors; a failure changes nothing. */
static int constrain(starmill_library *h, const double *fixed, const double *mean,
                     const double *sigma)
{
  mill_config config = h->config; /* the copy borrows the list of selected stars */
  const int i_offset = MILL_PAR_LABEL0 + h->lib.n_label; /* first velocity offset */
  config.n_fixed = config.n_prior = 0;
  if (!mean != !sigma)
    return MILL_ERROR(MILL_ERR_USAGE, "priors have a mean and a sigma: give both or neither");
  for (int j = 0; j < mill_n_par(h); j++) {
    const int is_fixed = fixed && !isnan(fixed[j]), is_prior = mean && sigma && sigma[j] != 0.0;
    if (j >= i_offset && (is_fixed || is_prior))
      return MILL_ERROR(MILL_ERR_USAGE,
                        "velocity offsets cannot be fixed or given a prior here: the key "
                        "velocity_offset_sigma sets the sigma of their prior");
    if (is_fixed)
      config.fixed[config.n_fixed++] = named(h, j, fixed[j], 0.0);
    if (is_prior)
      config.prior[config.n_prior++] = named(h, j, mean[j], sigma[j]);
  }
  MILL_CHECK(mill_config_bind(&config, &h->lib, 1));
  MILL_CHECK(mill_prior_check(&h->lib, 1, &config.fit, 0));
  config.fit.resolution = h->set.resolution; /* open_library derived it from the key lsf */
  MILL_CHECK(mill_pipeline_constrain(h->pipeline, &config.fit));
  h->config = config;
  h->held = 0; /* the next call loads its star again */
  return MILL_OK;
}

int starmill_library_constrain(starmill_library *library, const double *fixed, const double *mean,
                               const double *sigma, starmill_error *error)
{
  MILL_REFUSE_NULL(error, library);
  MILL_LOCKED(&library->mutex);
  return mill_tell(constrain(library, fixed, mean, sigma), error);
}
