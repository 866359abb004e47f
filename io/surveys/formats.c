/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/surveys/formats.h"

#include <string.h>

#include "src/config/arms.h"

const mill_format *const *mill_formats(int *n)
{
  static const mill_format *const formats[] = {
      &mill_format_desi,  &mill_format_sdss,     &mill_format_lamost, &mill_format_lamost_mrs,
      &mill_format_weave, &mill_format_fourmost, &mill_format_pfs,    &mill_format_generic,
  };
  *n = (int)(sizeof formats / sizeof formats[0]);
  return formats;
}

int mill_format_find(const char *wanted, const mill_format *const *formats, int n, const char *path,
                     const mill_fits_guard *guard, const mill_format **out)
{
  const int is_forced = wanted[0] != '\0' && strcmp(wanted, "auto") != 0;
  char names[1024] = ""; /* "desi (DESI coadd and spectra files), sdss (...)" */
  *out = NULL;
  for (int i = 0; i < n && !*out; i++)
    if (is_forced ? strcmp(formats[i]->name, wanted) == 0 : formats[i]->recognise(guard))
      *out = formats[i];
  if (*out)
    return MILL_OK;
  for (size_t i = 0, at = 0; i < (size_t)n && at < sizeof names; i++)
    at += (size_t)snprintf(names + at, sizeof names - at, "%s%s (%s)", i ? ", " : "",
                           formats[i]->name, formats[i]->description);
  if (is_forced)
    return MILL_ERROR(MILL_ERR_CONFIG, "format: %s is unknown; choose one of %s", wanted, names);
  return MILL_ERROR(
      MILL_ERR_INPUT,
      "%s: is of no known format (known: %s); give such a file, or name its format by --format",
      path, names);
}

int mill_format_take_cameras(const char *name, const mill_library *lib, mill_config *config)
{
  int n = 0;
  const mill_format *const *formats = mill_formats(&n);
  for (const mill_format *const *f = formats; f < formats + n; f++)
    if (strcmp((*f)->name, name) == 0)
      return mill_config_take_cameras(lib, name, (*f)->camera, (*f)->n_camera,
                                      (*f)->cameras_are_channels, config);
  return MILL_OK;
}

int mill_format_of(const char *path, const mill_config *config, const mill_format **out)
{
  int n = 0;
  MILL_AT_END(mill_fits_file_close_at) mill_fits_file *fits = NULL;
  const mill_open_limits limits = {config->gzip_limit_mib, config->scratch};
  const mill_format *const *formats = mill_formats(&n);
  *out = NULL;
  MILL_CHECK(mill_fits_file_open(path, &limits, &fits));
  return mill_format_find(config->format, formats, n, fits->guard->path, fits->guard, out);
}
