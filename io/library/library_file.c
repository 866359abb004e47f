/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/library/library_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files/whole_file.h"
#include "io/hdf5/hdf5_util.h"
#include "io/library/library_parts.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/file_roles.h"
#include "src/system/regular_file.h"
#include "src/system/version.h"

enum { MAX_PATH = sizeof((mill_library *)0)->path };

#define FORMAT_NAME "starmill library"
#define REFUSED(file, format, ...)                                                                 \
  MILL_ERROR((file)->code, "%s: " format, (file)->path, ##__VA_ARGS__)

/* ---- reading ----------------------------------------------------------------------------- */

static int read_format(const mill_h5_file *file)
{
  char text[64];
  int version = 0;
  if (!mill_h5_has_attr(file, "/", "format")) {
    if (mill_h5_exists(file, "lam") && mill_h5_exists(file, "layer0"))
      return REFUSED(file,
                     "is one arm's emulator, not a library; make one with starmill library import");
    return REFUSED(file, "is not a starmill library (no attribute format)");
  }
  MILL_CHECK(mill_h5_read_attr_text(file, "/", "format", text, sizeof text));
  if (strcmp(text, FORMAT_NAME) != 0)
    return REFUSED(file, "is not a starmill library (its attribute format is not '%s')",
                   FORMAT_NAME);
  MILL_CHECK(mill_h5_read_attr_int(file, "/", "format_version", &version));
  if (version != MILL_LIBRARY_FORMAT)
    return REFUSED(file, "has library format %d, this program reads %d", version,
                   MILL_LIBRARY_FORMAT);
  return MILL_OK;
}

/* Lines of text for people, where there are any. */
static int read_report(const mill_h5_file *file, mill_library *lib)
{
  if (!mill_h5_has_attr(file, "/", "report"))
    return MILL_OK;
  MILL_CHECK(MILL_ALLOC(MILL_LIBRARY_MAX_REPORT, &lib->report));
  MILL_CHECK(mill_h5_read_attr_text(file, "/", "report", lib->report, MILL_LIBRARY_MAX_REPORT));
  for (const char *c = lib->report; *c; c++)
    if (*c != '\n' && (*c < ' ' || *c > '~'))
      return REFUSED(file, "attribute report has unprintable characters");
  return MILL_OK;
}

int mill_library_read(const char *path, mill_library *lib)
{
  int err = MILL_OK;
  mill_h5_file file = {.id = H5I_INVALID_HID};
  char stored[65];
  if (strlen(path) >= sizeof lib->path)
    MILL_FAIL(MILL_ERR_LIBRARY, "the library's path is longer than %zu bytes: %.80s...",
              sizeof lib->path - 1, path);
  MILL_TRY(mill_h5_open(path, MILL_ERR_LIBRARY, &file));
  MILL_TRY(read_format(&file)); /* first: another format may hold what the scan does not know */
  MILL_TRY(mill_h5_scan(&file));
  MILL_TRY(mill_h5_read_attr_text(&file, "/", "name", lib->name, sizeof lib->name));
  MILL_TRY(mill_library_read_contents(&file, lib));
  MILL_TRY(read_report(&file, lib));
  MILL_TRY(mill_library_check(lib, path));
  MILL_TRY(mill_h5_read_attr_text(&file, "/", "hash", stored, sizeof stored));
  mill_library_digest(lib, lib->hash);
  if (strcmp(stored, lib->hash) != 0)
    MILL_FAIL(MILL_ERR_LIBRARY,
              "%s: its contents do not match its attribute hash, so it was damaged or changed; "
              "make it again",
              path);
  snprintf(lib->path, sizeof lib->path, "%s", path);
done:
  mill_h5_close(&file);
  if (err != MILL_OK)
    mill_library_clear(lib);
  return err;
}

/* ---- writing ----------------------------------------------------------------------------- */

/* The whole file as bytes: HDF5 leaves a file that it cannot write in an undefined state, so it
   never writes to the disk itself. */
static int make_image(const char *name, const mill_library *lib, void **image, size_t *n_byte)
{
  int err = MILL_OK;
  char hash[65], program[128];
  mill_h5_file file = {.id = H5I_INVALID_HID};
  snprintf(program, sizeof program, "starmill %s (%s)", mill_version(), mill_version_revision());
  MILL_TRY(mill_h5_create_image(name, &file));
  mill_library_digest(lib, hash);
  MILL_TRY(mill_h5_write_attr_text(&file, "/", "format", FORMAT_NAME));
  MILL_TRY(mill_h5_write_attr_int(&file, "/", "format_version", MILL_LIBRARY_FORMAT));
  MILL_TRY(mill_h5_write_attr_text(&file, "/", "written_by", program));
  MILL_TRY(mill_h5_write_attr_text(&file, "/", "name", lib->name));
  MILL_TRY(mill_h5_write_attr_text(&file, "/", "hash", hash));
  MILL_TRY(mill_library_write_contents(&file, lib));
  if (lib->report)
    MILL_TRY(mill_h5_write_attr_text(&file, "/", "report", lib->report));
  MILL_TRY(mill_h5_get_image(&file, image, n_byte));
done:
  mill_h5_close(&file);
  return err;
}

/* May a library be written at output?  path: the end of its links, as what is renamed would replace
   a link. */
static int find_end(const char *output, int overwrite, char path[MAX_PATH])
{
  struct stat status;
  char folder[MAX_PATH] = ".";
  MILL_CHECK(mill_resolve_links(output, path, MAX_PATH));
  const size_t n = (size_t)(mill_base_name(path) - path);
  if (stat(path, &status) == 0) {
    if (!S_ISREG(status.st_mode))
      return MILL_ERROR(MILL_ERR_OUTPUT, "%s: exists and is not a regular file", path);
    MILL_CHECK(mill_refuse_existing(path, overwrite));
    MILL_CHECK(mill_refuse_foreign(path, "--output", "starmill library"));
  }
  if (n > 0)
    snprintf(folder, sizeof folder, "%.*s", (int)(n > 1 ? n - 1 : n), path);
  if (access(folder, W_OK | X_OK) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: cannot be written into the folder %s: %s", path, folder,
                      strerror(errno));
  return MILL_OK;
}

int mill_library_writable(const char *path, int overwrite)
{
  char end[MAX_PATH];
  return find_end(path, overwrite, end);
}

int mill_library_write(const char *path, const mill_library *lib, int overwrite)
{
  int err = MILL_OK;
  char end[MAX_PATH], temporary[MAX_PATH + 32];
  void *image = NULL;
  size_t n_byte = 0;
  MILL_TRY(mill_library_check(lib, path));
  MILL_TRY(find_end(path, overwrite, end));
  snprintf(temporary, sizeof temporary, "%s.tmp-%ld", end, (long)getpid());
  MILL_TRY(make_image(temporary, lib, &image, &n_byte));
  MILL_TRY(mill_whole_file_write(end, temporary, image, n_byte));
done:
  mill_free(image);
  return err;
}
