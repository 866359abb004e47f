#define _GNU_SOURCE /* memmem */

#include "io/particles/map_file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include <fitsio.h>

#include "io/files/lock_file.h"
#include "io/files/whole_file.h"
#include "io/hdf5/hdf5_util.h"
#include "io/hdf5/parallel_hdf5.h"
#include "kernels/base/error.h"
#include "src/system/file_roles.h"
#include "src/system/regular_file.h"
#include "src/system/version.h"

#define FORMAT "starmill density"

enum { BLOCK = 2880 };

/* *is_fits: 1 for FITS, 0 for HDF5, by the end of the name.  MILL_ERR_USAGE for another one. */
static int find_kind(const char *path, int *is_fits)
{
  static const char *const end[] = {".h5", ".hdf5", ".fits", ".fit"};
  for (int k = 0; k < 4; k++) {
    const size_t n = strlen(path), n_end = strlen(end[k]);
    if (n > n_end && strcasecmp(path + n - n_end, end[k]) == 0) {
      *is_fits = k > 1;
      return MILL_OK;
    }
  }
  return MILL_ERROR(MILL_ERR_USAGE,
                    "--output %s: end its name in .h5 or .fits, which says what is written", path);
}

int mill_map_file_check(const char *path, int overwrite)
{
  struct stat status;
  char first[BLOCK];
  int is_fits = 0;
  MILL_CHECK(find_kind(path, &is_fits));
  if (lstat(path, &status) != 0)
    return MILL_OK;
  MILL_CHECK(mill_refuse_existing(path, overwrite));
  if (!is_fits) {
    return mill_refuse_foreign(path, "--output", FORMAT);
  }
  const size_t n = mill_first_bytes(path, first, sizeof first);
  if (n > 0 &&
      (n < 6 || memcmp(first, "SIMPLE", 6) != 0 || !memmem(first, n, FORMAT, strlen(FORMAT))))
    return MILL_ERROR(
        MILL_ERR_USAGE,
        "--output %s exists and is no %s file, and --overwrite replaces nothing else: give "
        "another name, or remove it yourself",
        path, FORMAT);
  return MILL_OK;
}

/* A unit as readers of FITS take it: what is a logarithm of something has dex. */
static const char *plain_unit(const char *unit)
{
  return strncmp(unit, "log(", 4) == 0 ? "dex" : unit;
}

/* "K-1"; "km-1 s" of km/s, as units with brackets are not understood everywhere. */
static void inverse_unit(const char *unit, char out[64])
{
  const size_t n = strlen(unit);
  size_t n_top = 0, n_low = 0;
  while (isalnum((unsigned char)unit[n_top]))
    n_top++;
  while (unit[n_top] == '/' && isalnum((unsigned char)unit[n_top + 1 + n_low]))
    n_low++;
  if (n_low > 0 && n_top > 0 && n == n_top + 1 + n_low)
    snprintf(out, 64, "%.*s-1 %s", (int)n_top, unit, unit + n_top + 1);
  else if (n == n_top)
    snprintf(out, 64, "%s-1", unit);
  else
    snprintf(out, 64, "(%s)-1", unit);
}

/* "K-1 dex-1"; steradians for a sphere; empty where a unit is not known. */
static void density_unit(const mill_map_facts *f, char out[160])
{
  char x[64], y[64];
  const char *of_x = plain_unit(f->axis[0].unit), *of_y = plain_unit(f->axis[1].unit);
  out[0] = '\0';
  inverse_unit(of_x, x);
  inverse_unit(of_y, y);
  if (f->is_sphere)
    snprintf(out, 160, "sr-1");
  else if (of_x[0] && of_y[0])
    snprintf(out, 160, "%s %s", x, y);
}

static const char *program(char out[128])
{
  snprintf(out, 128, "starmill %s (%s)", mill_version(), mill_version_revision());
  return out;
}

/* Paths, one a line; for free. */
static int join_inputs(const mill_map_facts *f, char **text)
{
  size_t n = 0;
  FILE *out = open_memstream(text, &n);
  if (!out)
    return MILL_ERROR(MILL_ERR_MEMORY, "no memory for the names of the catalogs");
  for (int i = 0; i < f->n_input; i++)
    fprintf(out, "%s%s", i > 0 ? "\n" : "", f->input[i]);
  if (fclose(out) != 0)
    return MILL_ERROR(MILL_ERR_MEMORY, "no memory for the names of the catalogs");
  return MILL_OK;
}

/* ---- HDF5 ---- */

static int put_axis(const mill_h5_file *file, const char *name, const mill_map_axis *axis)
{
  int err = MILL_OK;
  double *centre = NULL;
  const size_t n = (size_t)axis->n;
  MILL_TRY(MILL_ALLOC(n, &centre));
  for (size_t i = 0; i < n; i++)
    centre[i] = axis->first + (double)i * axis->step;
  MILL_TRY(mill_h5_write(file, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &n, centre,
                         axis->unit[0] ? axis->unit : NULL, "centres of the cells"));
  MILL_TRY(mill_ph5_attr_text(file->id, file->path, name, "column", axis->column));
  MILL_TRY(mill_h5_write_attr_double(file, name, "bandwidth", axis->bandwidth));
done:
  mill_free(centre);
  return err;
}

static int put_counts(const mill_h5_file *file, const mill_map_facts *f)
{
  const struct {
    const char *name;
    int64_t n;
  } count[] = {{"N_ROW", f->n_row},
               {"N_USED", f->n_used},
               {"N_NOT_GOOD", f->n_not_good},
               {"N_NOT_A_NUMBER", f->n_nan},
               {"N_ON_MAP", f->n_on_map}};
  for (size_t i = 0; i < sizeof count / sizeof *count; i++)
    MILL_CHECK(mill_ph5_attr_int64(file->id, file->path, ".", count[i].name, &count[i].n, 0));
  return MILL_OK;
}

static int hdf5_image(const char *name, const mill_map_facts *f, const double *density,
                      void **image, size_t *n_byte)
{
  int err = MILL_OK;
  char unit[160], text[128], *inputs = NULL;
  const size_t dim[] = {(size_t)f->axis[1].n, (size_t)f->axis[0].n};
  mill_h5_file file = {.id = H5I_INVALID_HID};
  density_unit(f, unit);
  MILL_TRY(join_inputs(f, &inputs));
  MILL_TRY(mill_h5_create_image(name, &file));
  MILL_TRY(mill_ph5_attr_text(file.id, name, ".", "FORMAT", FORMAT));
  MILL_TRY(mill_ph5_attr_text(file.id, name, ".", "PROGRAM", program(text)));
  MILL_TRY(mill_ph5_attr_text(file.id, name, ".", "GEOMETRY", f->is_sphere ? "sphere" : "plane"));
  MILL_TRY(mill_ph5_attr_text(file.id, name, ".", "BANDWIDTH_RULE", f->rule));
  MILL_TRY(mill_h5_write_attr_int(&file, "/", "ADAPTIVE", f->is_adaptive));
  MILL_TRY(mill_h5_write_attr_double(&file, "/", "KERNEL_COVARIANCE", f->covariance));
  MILL_TRY(mill_ph5_attr_text(file.id, name, ".", "FORM", f->form));
  MILL_TRY(mill_h5_write_attr_double(&file, "/", "ERROR_BOUND", f->bound));
  MILL_TRY(mill_h5_write_attr_double(&file, "/", "INTEGRAL", f->integral));
  MILL_TRY(put_counts(&file, f));
  MILL_TRY(mill_h5_write(&file, "DENSITY", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 2, dim, density,
                         unit[0] ? unit : NULL,
                         "density [y][x] of the rows used, whose integral over all x and y is 1"));
  MILL_TRY(put_axis(&file, "X", &f->axis[0]));
  MILL_TRY(put_axis(&file, "Y", &f->axis[1]));
  MILL_TRY(mill_ph5_text(file.id, name, "COMMAND", f->command, "command line"));
  MILL_TRY(mill_ph5_text(file.id, name, "INPUTS", inputs, "catalogs, one a line"));
  MILL_TRY(mill_h5_get_image(&file, image, n_byte));
done:
  mill_h5_close(&file);
  free(inputs);
  return err;
}

/* ---- FITS ---- */

/* A header holds printable ASCII alone. */
static void make_printable(char *text)
{
  for (char *c = text; *c; c++)
    *c = (char)(*c >= ' ' && *c <= '~' ? *c : '?');
}

/* As much of a text as one card holds. */
static void printable(const char *text, char out[FLEN_VALUE])
{
  snprintf(out, FLEN_VALUE, "%.60s", text);
  make_printable(out);
}

/* The type of a linear axis: the column's name, unless a FITS reader takes it for something else,
 * as
 * XXXX-YYY for a projection, or VRAD for a spectral axis, whose values it turns into m/s. */
static void linear_type(const char *column, char type[FLEN_VALUE])
{
  static const char *const meant[] = {"FREQ", "ENER", "WAVN", "VRAD", "WAVE",
                                      "VOPT", "ZOPT", "AWAV", "VELO", "BETA"};
  snprintf(type, FLEN_VALUE, "%.60s", column);
  for (char *c = type; *c; c++)
    *c = (char)(isalnum((unsigned char)*c) ? toupper((unsigned char)*c) : '_');
  for (size_t k = 0; k < sizeof meant / sizeof *meant; k++)
    if (strcmp(type, meant[k]) == 0) {
      strcat(type, "_");
      return;
    }
}

/* The coordinates of an axis; of right ascensions and declinations in plate carree, whose reference
 * must stand on the equator for both to be linear. */
static void put_wcs(fitsfile *out, const mill_map_facts *f, int a, int *status)
{
  const mill_map_axis *axis = &f->axis[a];
  char key[16], type[FLEN_VALUE], name[FLEN_VALUE];
  double value = axis->first, pixel = 1.0;
  linear_type(axis->column, type);
  if (f->is_sphere) {
    snprintf(type, sizeof type, "%s", a == 0 ? "RA---CAR" : "DEC--CAR");
    value = a == 0 ? axis->first + 0.5 * (axis->n - 1) * axis->step : 0.0;
    pixel = 1.0 + (value - axis->first) / axis->step;
  }
  printable(axis->column, name);
  snprintf(key, sizeof key, "CTYPE%d", a + 1);
  fits_write_key_str(out, key, type, NULL, status);
  snprintf(key, sizeof key, "CNAME%d", a + 1);
  fits_write_key_str(out, key, name, "column of the catalogs", status);
  snprintf(key, sizeof key, "CUNIT%d", a + 1);
  printable(plain_unit(axis->unit), name);
  if (name[0])
    fits_write_key_str(out, key, name, NULL, status);
  const struct {
    const char *key, *comment;
    double value;
  } number[] = {{"CRPIX", NULL, pixel},
                {"CRVAL", NULL, value},
                {"CDELT", NULL, axis->step},
                {"BANDW", "width of the kernel along this axis", axis->bandwidth}};
  for (size_t k = 0; k < sizeof number / sizeof *number; k++) {
    snprintf(key, sizeof key, "%s%d", number[k].key, a + 1);
    fits_write_key_dbl(out, key, number[k].value, -17, number[k].comment, status);
  }
}

static void put_facts(fitsfile *out, const mill_map_facts *f, int *status)
{
  char all[160], unit[FLEN_VALUE], text[128];
  density_unit(f, all);
  printable(all, unit);
  fits_write_key_str(out, "CREATOR", FORMAT, NULL, status);
  fits_write_key_str(out, "PROGRAM", program(text), NULL, status);
  if (unit[0])
    fits_write_key_str(out, "BUNIT", unit, "the integral over all x and y is 1", status);
  put_wcs(out, f, 0, status);
  put_wcs(out, f, 1, status);
  if (f->is_sphere)
    fits_write_key_str(out, "RADESYS", "ICRS", "as the catalogs are taken to have it", status);
  fits_write_key_str(out, "BWRULE", f->rule, "rule of the bandwidth", status);
  fits_write_key_log(out, "ADAPTIVE", f->is_adaptive, "kernels with local widths", status);
  fits_write_key_dbl(out, "KERNCOV", f->covariance, -17, "covariance of the kernel", status);
  fits_write_key_str(out, "FORM", f->form, "of the sum over rows", status);
  fits_write_key_dbl(out, "ERRBOUND", f->bound, -9, "no value is further from the exact sum",
                     status);
  fits_write_key_dbl(out, "INTEGRAL", f->integral, -9, "of the map over its cells", status);
  fits_write_key_lng(out, "NROW", f->n_row, "rows of the catalogs", status);
  fits_write_key_lng(out, "NUSED", f->n_used, "of them used", status);
  fits_write_key_lng(out, "NNOTGOOD", f->n_not_good, "left out: STATUS, RVS_WARN", status);
  fits_write_key_lng(out, "NNAN", f->n_nan, "left out: a value is no number", status);
  fits_write_key_lng(out, "NONMAP", f->n_on_map, "rows used that lie on the map", status);
}

/* The command line, which names the catalogs too. */
static int put_command(fitsfile *out, const mill_map_facts *f, int *status)
{
  int err = MILL_OK;
  char *text = strdup(f->command);
  if (!text)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for the command line");
  make_printable(text);
  fits_write_history(out, text, status);
done:
  free(text);
  return err;
}

static int fits_image(const char *name, const mill_map_facts *f, const double *density,
                      void **image, size_t *n_byte)
{
  int err = MILL_OK, status = 0, ignored = 0;
  fitsfile *out = NULL;
  const long axis[] = {f->axis[0].n, f->axis[1].n}, n_cell = axis[0] * axis[1];
  char reason[FLEN_STATUS];
  *image = NULL;
  *n_byte = BLOCK; /* CFITSIO makes it larger */
  *image = malloc(*n_byte);
  if (!*image)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for %s", name);
  fits_create_memfile(&out, image, n_byte, (size_t)1 << 20, realloc, &status);
  fits_create_img(out, DOUBLE_IMG, 2, (long *)(uintptr_t)axis, &status);
  put_facts(out, f, &status);
  MILL_TRY(put_command(out, f, &status));
  fits_write_img(out, TDOUBLE, 1, n_cell, (void *)(uintptr_t)density, &status);
  fits_write_chksum(out, &status);
  fits_flush_file(out, &status);
  LONGLONG end = 0;
  fits_get_hduaddrll(out, NULL, NULL, &end, &status);
  *n_byte = (size_t)end;
  if (status != 0) {
    fits_get_errstatus(status, reason);
    fits_clear_errmsg();
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: the FITS image cannot be made: %s", name, reason);
  }
done:
  if (out)
    fits_close_file(out, &ignored);
  return err;
}

/* ---- both ---- */

int mill_map_file_write(const char *path, int overwrite, const mill_map_facts *f,
                        const double *density)
{
  int err = MILL_OK, is_fits = 0;
  char end[MILL_MAX_PATH], temporary[MILL_MAX_PATH + 128], job[64];
  mill_lock lock = {.path = ""};
  void *image = NULL;
  size_t n_byte = 0;
  MILL_TRY(find_kind(path, &is_fits));
  MILL_TRY(mill_resolve_links(path, end, sizeof end));
  MILL_TRY(mill_lock_take(end, &lock));
  mill_lock_remove_leftovers(&lock, end);
  MILL_TRY(mill_map_file_check(end, overwrite));
  mill_lock_job(job, sizeof job);
  snprintf(temporary, sizeof temporary, "%s.tmp-%s", end, job);
  MILL_TRY(is_fits ? fits_image(temporary, f, density, &image, &n_byte)
                   : hdf5_image(temporary, f, density, &image, &n_byte));
  err = mill_whole_file_write(end, temporary, image, n_byte);
  if (err == MILL_ERR_OUTPUT)
    MILL_FAIL(err, "%s: it needs %.1f MB: make room or choose another output", mill_error_message(),
              (double)n_byte / 1e6);
done:
  mill_lock_release(&lock);
  mill_free(image);
  return err;
}
