/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/library/library_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files/sha256.h"
#include "io/library/library_parts.h"
#include "kernels/base/memory.h"
#include "src/system/file_roles.h"
#include "src/system/regular_file.h"

enum { MAX_PATH = sizeof((mill_library *)0)->path };

#define FORMAT_NAME "starmill library"

/* ---- reading ----------------------------------------------------------------------------- */

static int read_format(const mill_h5_file *file)
{
  char text[64];
  int version = 0;
  if (!mill_h5_has_attr(file, "/", "format")) {
    if (mill_h5_exists(file, "lam") && mill_h5_exists(file, "layer0"))
      return MILL_REFUSED(file,
                          "is one arm's emulator; make a library of it by starmill library import");
    return MILL_REFUSED(file, "is not a starmill library (no attribute format)");
  }
  MILL_CHECK(mill_h5_read_attr_text(file, "/", "format", text, sizeof text));
  if (strcmp(text, FORMAT_NAME) != 0)
    return MILL_REFUSED(file, "is not a starmill library (its attribute format is not '%s')",
                        FORMAT_NAME);
  MILL_CHECK(mill_h5_read_attr_int(file, "/", "format_version", &version));
  if (version != MILL_LIBRARY_FORMAT)
    return MILL_REFUSED(file, "has library format %d, this program reads %d", version,
                        MILL_LIBRARY_FORMAT);
  return MILL_OK;
}

/* Read the report, a text for users, if there is one. */
static int read_report(const mill_h5_file *file, mill_library *lib)
{
  if (!mill_h5_has_attr(file, "/", "report"))
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(MILL_LIBRARY_MAX_REPORT, &lib->report));
  MILL_CHECK(mill_h5_read_attr_text(file, "/", "report", lib->report, MILL_LIBRARY_MAX_REPORT));
  for (const char *c = lib->report; *c; c++)
    if (*c != '\n' && (*c < ' ' || *c > '~'))
      return MILL_REFUSED(file, "attribute report has unprintable characters");
  return MILL_OK;
}

/* Read a library from the bytes image [n_byte] or, if image is NULL, from the file path.  The hash
 * of an unfinished image is 64 zeros. */
static int read_library(const char *path, const void *image, size_t n_byte, mill_library *lib)
{
  int err = MILL_OK;
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  char stored[65];
  if (strlen(path) >= sizeof lib->path)
    MILL_FAIL(MILL_ERR_LIBRARY, "%.80s...: the library's path is longer than %zu bytes; shorten it",
              path, sizeof lib->path - 1);
  MILL_TRY(image ? mill_h5_open_image(image, n_byte, path, MILL_ERR_LIBRARY, &file)
                 : mill_h5_open(path, MILL_ERR_LIBRARY, &file));
  MILL_TRY(read_format(&file)); /* before the scan, which may refuse objects of another format */
  MILL_TRY(mill_h5_scan(&file));
  MILL_TRY(mill_h5_read_attr_text(&file, "/", "name", lib->name, sizeof lib->name));
  MILL_TRY(mill_library_read_contents(&file, lib));
  MILL_TRY(read_report(&file, lib));
  MILL_TRY(mill_library_check(lib, path));
  MILL_TRY(mill_h5_read_attr_text(&file, "/", "hash", stored, sizeof stored));
  mill_library_digest(lib, lib->hash);
  if (strcmp(stored, lib->hash) != 0 && !(image && strspn(stored, "0") == sizeof stored - 1))
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: its contents do not match its attribute hash, so it was damaged or changed; "
              "make it again",
              path);
  snprintf(lib->path, sizeof lib->path, "%s", path);
done:
  if (err != MILL_OK)
    mill_library_clear(lib);
  return err;
}

int mill_library_read(const char *path, mill_library *lib)
{
  return read_library(path, NULL, 0, lib);
}

int mill_library_check_file(const char *path, const void *image, size_t n_byte, char hash[65])
{
  MILL_OWNED mill_library *lib = NULL;
  MILL_CHECK(MILL_ALLOC(1, &lib));
  MILL_CHECK(read_library(path, image, n_byte, lib));
  memcpy(hash, lib->hash, sizeof lib->hash);
  mill_library_clear(lib);
  return MILL_OK;
}

/* ---- components of the sky ---------------------------------------------------------------- */

static int read_sky(const mill_h5_file *file, mill_arm *arm)
{
  mill_sky *sky = &arm->sky;
  char wave[MILL_MAX_NAME + 16], component[MILL_MAX_NAME + 16];
  size_t dim[2];
  snprintf(wave, sizeof wave, "%s/wave", arm->name);
  snprintf(component, sizeof component, "%s/components", arm->name);
  MILL_CHECK(mill_h5_shape(file, component, 2, dim));
  if (dim[0] < 1 || dim[0] > MILL_MAX_ERROR || dim[1] < 2 || dim[1] > MILL_LIBRARY_MAX_PIX)
    return MILL_REFUSED(file,
                        "dataset %s has the shape [%zu][%zu], expected 1 to %d components and "
                        "2 to %d pixels",
                        component, dim[0], dim[1], MILL_MAX_ERROR, MILL_LIBRARY_MAX_PIX);
  MILL_CHECK(mill_h5_read_new(file, wave, H5T_NATIVE_DOUBLE, 1, &dim[1], &sky->wave_aa));
  MILL_CHECK(mill_h5_read_new(file, component, H5T_NATIVE_FLOAT, 2, dim, &sky->component));
  sky->n_component = (int)dim[0];
  sky->n_pix = (int)dim[1];
  for (size_t i = 0; i < dim[1]; i++)
    if (!isfinite(sky->wave_aa[i]) || sky->wave_aa[i] <= (i > 0 ? sky->wave_aa[i - 1] : 0.0))
      return MILL_REFUSED(file, "dataset %s is not ascending at pixel %zu", wave, i);
  for (size_t i = 0; i < dim[0] * dim[1]; i++)
    if (!isfinite(sky->component[i]))
      return MILL_REFUSED(file, "dataset %s is not finite in component %zu at pixel %zu", component,
                          i / dim[1], i % dim[1]);
  if (!mill_arm_overlaps(arm, sky->wave_aa[0], sky->wave_aa[dim[1] - 1]))
    return MILL_REFUSED(file, "dataset %s, from %g to %g, lies outside arm %s; give it in Angstrom",
                        wave, sky->wave_aa[0], sky->wave_aa[dim[1] - 1], arm->name);
  return MILL_OK;
}

int mill_library_add_sky(const char *path, mill_library *lib, char hash[65])
{
  int err = MILL_OK, n_read = 0;
  MILL_AT_END(mill_h5_close) mill_h5_file file = {.id = H5I_INVALID_HID};
  mill_sha256 sha;
  if (!path[0])
    return MILL_OK; /* no sky components: hash stays as it is */
  mill_sha256_init(&sha);
  MILL_TRY(mill_h5_open(path, MILL_ERR_CONFIG, &file));
  MILL_TRY(mill_h5_scan(&file));
  for (int a = 0; a < lib->n_arm; a++) {
    const char *name = lib->arm[a].name;
    const mill_sky *sky = &lib->arm[a].sky;
    if (!mill_h5_exists(&file, name))
      continue;
    MILL_TRY(read_sky(&file, &lib->arm[a]));
    const size_t n = (size_t)sky->n_pix;
    mill_sha256_update(&sha, name, strlen(name) + 1);
    mill_sha256_update(&sha, sky->wave_aa, n * sizeof *sky->wave_aa);
    mill_sha256_update(&sha, sky->component, n * (size_t)sky->n_component * sizeof *sky->component);
    n_read++;
  }
  if (n_read == 0)
    MILL_FAIL(
        MILL_ERR_CONFIG,
        "sky_components: %s has no group with the name of an arm, such as %s: rename the arms "
        "(key arms) or the groups",
        path, lib->arm[0].name);
done:
  mill_sha256_final(&sha, hash);
  return err;
}

/* ---- before a library is made ------------------------------------------------------------ */

int mill_library_writable(const char *output, int overwrite)
{
  struct stat status;
  char path[MAX_PATH], folder[MAX_PATH] = ".";
  /* resolve links, since the final rename would replace a link */
  MILL_CHECK(mill_resolve_links(output, path, MAX_PATH));
  const size_t n = (size_t)(mill_base_name(path) - path);
  if (stat(path, &status) == 0) {
    if (!S_ISREG(status.st_mode))
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s: not a regular file; give another name", path);
    MILL_CHECK(mill_refuse_existing(path, overwrite));
    MILL_CHECK(mill_refuse_foreign(path, "--output", "starmill library"));
  }
  if (n > 0) /* cut the slash at the end, except from "/" */
    snprintf(folder, sizeof folder, "%.*s", (int)(n > 1 ? n - 1 : n), path);
  if (access(folder, W_OK | X_OK) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be written into the folder %s: %s", path, folder,
                      strerror(errno));
  return MILL_OK;
}
