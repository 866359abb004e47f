#define _GNU_SOURCE /* pipe2, environ */

#include "io/hdf5/hdf5_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hdf5.h>

#include "io/hdf5/hdf5_util.h"
#include "kernels/base/error.h"
#include "src/system/log.h"

enum {
  N_KIND = MILL_PROBE_RESULT + 1,
  NOT_STARTED = 127, /* exit status of a child whose program or its libraries could not be loaded */
  /* exit status of a child whose reader failed: this and the code, which nothing else gives */
  REFUSED = 64,
  CPU_S = 10,           /* in addition to a second for each CPU_BYTES of the file */
  CPU_BYTES = 16 << 20, /* a twentieth of what any machine does */
  MEMORY_FACTOR = 16,   /* times the file's size, in addition to MEMORY_BYTES */
  MEMORY_BYTES = 512 << 20,
  SLAB_BYTES = 16 << 20,   /* read at a time */
  END_BYTES = 1 << 16,     /* of either end of data in one piece */
  MAX_ATTRIBUTE = 1 << 20, /* bytes; HDF5 itself takes 64 kB unless told otherwise */
};
/* the shadow of the address sanitizer is larger than any limit */
#if defined(__SANITIZE_ADDRESS__)
enum { LIMITS_MEMORY = 0 };
#elif defined(__has_feature)
enum { LIMITS_MEMORY = !__has_feature(address_sanitizer) };
#else
enum { LIMITS_MEMORY = 1 };
#endif

static const struct {
  const char *name, *what, *cure;
  int code;
} kind_of[N_KIND] = {
    [MILL_PROBE_LIBRARY] = {"library", "the library", "make or fetch it again", MILL_ERR_LIBRARY},
    [MILL_PROBE_EMULATOR] = {"emulator", "the emulator", "make or fetch it again",
                             MILL_ERR_LIBRARY},
    [MILL_PROBE_TABLE] = {"table", "the table to start from", "make or fetch it again",
                          MILL_ERR_CONFIG},
    [MILL_PROBE_GRID] = {"grid", "the grid file", "make it again", MILL_ERR_INPUT},
    [MILL_PROBE_PARTICLES] = {"particles", "the potential or the samples", "make it again",
                              MILL_ERR_CONFIG},
    [MILL_PROBE_CATALOG] = {"catalog", "the catalog", "make or fetch it again", MILL_ERR_INPUT},
    [MILL_PROBE_RESULT] = {"result", "the result", "move it away, or fit again with --overwrite",
                           MILL_ERR_OUTPUT},
};

static int is_ready;

/* ---- the child: reading --------------------------------------------------------------------- */

/* What cannot be read is left to the reader that wants it: this is for HDF5's own crashes, so
 * failures of single objects count for nothing. */

static herr_t read_attribute(hid_t object, const char *name, const H5A_info_t *info, void *context)
{
  (void)info;
  (void)context;
  mill_h5_array attr;
  hid_t native = 0;
  void *data = NULL;
  if (!mill_h5_array_open_attr(object, ".", name, &attr) ||
      (native = H5Tget_native_type(attr.type, H5T_DIR_ASCEND)) < 0)
    goto done;
  const hssize_t n = H5Sget_simple_extent_npoints(attr.space);
  const size_t size = H5Tget_size(native);
  if (n > 0 && size > 0 && size <= MAX_ATTRIBUTE && n <= MAX_ATTRIBUTE / (hssize_t)size &&
      H5Tget_size(attr.type) <= MAX_ATTRIBUTE)
    data = calloc((size_t)n, size);
  if (data && H5Aread(attr.id, native, data) >= 0 &&
      (H5Tget_class(native) == H5T_VLEN || H5Tis_variable_str(native) > 0))
    H5Dvlen_reclaim(native, attr.space, H5P_DEFAULT, data);
done:
  free(data);
  MILL_H5_CLOSE(native);
  mill_h5_array_close(&attr);
  return 0;
}

/* The rows [first, first + n_row). */
static void read_slab(const mill_h5_array *array, hid_t type, int n_dim, const hsize_t *dim,
                      hsize_t first, hsize_t n_row, void *data)
{
  hsize_t start[H5S_MAX_RANK] = {first}, count[H5S_MAX_RANK];
  memcpy(count, dim, (size_t)n_dim * sizeof *dim);
  count[0] = n_row;
  const hid_t memory = H5Screate_simple(n_dim, count, NULL);
  if (memory >= 0 &&
      H5Sselect_hyperslab(array->space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0)
    (void)H5Dread(array->id, type, memory, array->space, H5P_DEFAULT, data);
  MILL_H5_CLOSE(memory);
}

/* All rows, or those at the ends where HDF5 only copies what lies between. */
static void read_rows(const mill_h5_array *array, hid_t type, int is_one_piece)
{
  hsize_t dim[H5S_MAX_RANK], row_bytes = H5Tget_size(type);
  const int n_dim = H5Sget_simple_extent_dims(array->space, dim, NULL);
  if (n_dim < 1 || dim[0] == 0)
    return;
  for (int i = 1; i < n_dim; i++)
    if (__builtin_mul_overflow(row_bytes, dim[i], &row_bytes))
      return;
  if (row_bytes == 0 || row_bytes > SLAB_BYTES)
    return;
  hsize_t n_slab = (is_one_piece ? END_BYTES : SLAB_BYTES) / row_bytes;
  n_slab = n_slab == 0 ? 1 : n_slab > dim[0] ? dim[0] : n_slab;
  void *data = calloc(n_slab, row_bytes);
  const hsize_t step = is_one_piece && dim[0] > n_slab ? dim[0] - n_slab : n_slab;
  for (hsize_t at = 0; data && at < dim[0]; at += step)
    read_slab(array, type, n_dim, dim, at, at + n_slab < dim[0] ? n_slab : dim[0] - at, data);
  free(data);
}

/* As the readers of tables and results do: numbers of these two types, texts of fixed length. */
static void read_dataset(hid_t group, const char *name)
{
  mill_h5_array array;
  hid_t creation = 0;
  /* chunks that were never written take time and no room: they could be any number */
  if (!mill_h5_array_open(group, name, &array) || (creation = H5Dget_create_plist(array.id)) < 0 ||
      H5Dget_storage_size(array.id) == 0 || H5Pget_external_count(creation) != 0 ||
      H5Pget_layout(creation) == H5D_VIRTUAL)
    goto done;
  const H5T_class_t class = H5Tget_class(array.type);
  const int is_number = H5Tget_size(array.type) <= MILL_H5_MAX_NUMBER;
  const int is_one_piece = H5Pget_layout(creation) != H5D_CHUNKED;
  if (is_number && (class == H5T_INTEGER || class == H5T_ENUM))
    read_rows(&array, H5T_NATIVE_LLONG, is_one_piece);
  else if (is_number && class == H5T_FLOAT)
    read_rows(&array, H5T_NATIVE_DOUBLE, is_one_piece);
  else if (class == H5T_STRING && H5Tis_variable_str(array.type) == 0)
    read_rows(&array, array.type, is_one_piece);
done:
  MILL_H5_CLOSE(creation);
  mill_h5_array_close(&array);
}

static herr_t read_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
  hsize_t at = 0;
  (void)context;
  const hid_t object = info->type == H5L_TYPE_HARD ? H5Oopen(group, name, H5P_DEFAULT) : 0;
  if (object <= 0)
    return 0;
  (void)H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &at, read_attribute, NULL);
  if (H5Iget_type(object) == H5I_DATASET)
    read_dataset(group, name);
  MILL_H5_CLOSE(object);
  return 0;
}

/* Did it fail for want of memory?  The reader would get all of the machine's. */
static int wants_memory(const char *path)
{
  const char *message = mill_error_message();
  const size_t n = strlen(path);
  return strstr(message + (strncmp(message, path, n) == 0 ? n : 0), "alloc") != NULL;
}

/* What HDF5 finds wrong by itself its reader finds again and says in its own words; but a run that
 * continues a result must not write through it into other files. */
static int read_everything(enum mill_probe_kind kind, const char *path)
{
  int err = MILL_OK;
  hsize_t at = 0;
  mill_h5_file file = {.id = H5I_INVALID_HID};
  const int opened = mill_h5_open(path, kind_of[kind].code, &file);
  if (opened != MILL_OK)
    return wants_memory(path) ? opened : MILL_OK;
  const int scanned = mill_h5_scan(&file);
  if (kind == MILL_PROBE_RESULT || (scanned != MILL_OK && wants_memory(path)))
    err = scanned;
  (void)H5Aiterate2(file.id, H5_INDEX_NAME, H5_ITER_INC, &at, read_attribute, NULL);
  (void)H5Lvisit(file.id, H5_INDEX_NAME, H5_ITER_INC, read_link, NULL);
  mill_h5_close(&file);
  return err;
}

/* ---- the child: limits ---------------------------------------------------------------------- */

static void lower_limit(int resource, rlim_t to)
{
  struct rlimit limit;
  if (getrlimit(resource, &limit) == 0 && to < limit.rlim_cur) { /* infinity is the largest */
    limit.rlim_cur = to;
    (void)setrlimit(resource, &limit);
  }
}

/* A child that goes astray takes neither the node's memory nor its time, writes nothing and leaves
 * no core. */
static void limit_myself(const char *path)
{
  struct stat status;
  const rlim_t n_byte = stat(path, &status) == 0 ? (rlim_t)status.st_size : 0;
  lower_limit(RLIMIT_CORE, 0);
  lower_limit(RLIMIT_FSIZE, 0);
  lower_limit(RLIMIT_CPU, CPU_S + n_byte / CPU_BYTES);
  if (LIMITS_MEMORY)
    lower_limit(RLIMIT_DATA, MEMORY_BYTES + MEMORY_FACTOR * n_byte);
}

void mill_h5_probe_main(int argc, char **argv)
{
  int kind = 0;
  is_ready = 1;
  if (argc != 4 || strcmp(argv[1], "probe") != 0)
    return;
  while (kind < N_KIND && strcmp(argv[2], kind_of[kind].name) != 0)
    kind++;
  if (kind == N_KIND)
    return;
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit_myself(argv[3]);
  const int err = read_everything(kind, argv[3]);
  if (err != MILL_OK)
    dprintf(STDOUT_FILENO, "%s", mill_error_message());
  _exit(err == MILL_OK ? 0 : REFUSED + err); /* HDF5's own end is not needed, and may crash */
}

/* ---- the parent ----------------------------------------------------------------------------- */

/* Start the child, which writes into fd; what the system says.  It has one thread: OpenBLAS and
 * OpenMP start theirs before main().  The link names this program also under valgrind; where that
 * file was replaced or removed since, only the link itself still leads to it. */
static int spawn(const char *kind, const char *path, int fd, pid_t *child)
{
  static char sh[] = "sh", c[] = "-c";
  static char call[] = "OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 exec \"$0\" probe \"$1\" \"$2\" "
                       "</dev/null 2>/dev/null";
  static const int of_the_run[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};
  char program[4096];
  sigset_t blocked, before;
  const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
  posix_spawn_file_actions_t actions;
  program[n > 0 ? n : 0] = '\0';
  if (access(program, X_OK) != 0)
    snprintf(program, sizeof program, "/proc/%ld/exe", (long)getpid());
  char *const argv[] = {sh,  c, call, program, (char *)(uintptr_t)kind, (char *)(uintptr_t)path,
                        NULL};
  int rc = posix_spawn_file_actions_init(&actions);
  if (rc != 0)
    return rc;
  /* the child sees no signal that is meant for the run */
  sigemptyset(&blocked);
  for (size_t i = 0; i < sizeof of_the_run / sizeof *of_the_run; i++)
    sigaddset(&blocked, of_the_run[i]);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  rc = posix_spawn_file_actions_adddup2(&actions, fd, STDOUT_FILENO);
  if (rc == 0)
    rc = posix_spawn(child, "/bin/sh", &actions, NULL, argv, environ);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  posix_spawn_file_actions_destroy(&actions);
  return rc;
}

/* All that the child says, as printable text. */
static void hear(int fd, char *text, size_t size)
{
  size_t n = 0;
  ssize_t got;
  while (n + 1 < size &&
         ((got = read(fd, text + n, size - 1 - n)) > 0 || (got < 0 && errno == EINTR)))
    n += got > 0 ? (size_t)got : 0;
  text[n] = '\0';
  for (char *c = text; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 0x7f)
      *c = ' ';
}

static void warn_untried(const char *path, const char *reason)
{
  mill_log_warning("%s is read without a trial by another process: %s", path, reason);
}

static int judge(enum mill_probe_kind kind, const char *path, int status, const char *message)
{
  const char *what = kind_of[kind].what, *cure = kind_of[kind].cure;
  const int code = kind_of[kind].code, signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const int exit_status = WEXITSTATUS(status);
  if (signal == SIGXCPU)
    return MILL_ERROR(
        code, "%s: %s is damaged: a process that read it came to no end within its time; %s", path,
        what, cure);
  if (signal == SIGKILL)
    return MILL_ERROR(
        code,
        "%s: a process that read it was killed, which happens where memory is short: run it "
        "again with more; if that does not help, %s",
        path, cure);
  if (signal)
    return MILL_ERROR(code, "%s: %s is damaged: a process that read it died of signal %d (%s); %s",
                      path, what, signal, strsignal(signal), cure);
  if (exit_status > REFUSED && exit_status < REFUSED + MILL_N_ERROR && message[0])
    return MILL_ERROR(exit_status - REFUSED, "%s; %s", message, cure);
  if (exit_status == NOT_STARTED)
    warn_untried(path, "its program cannot be loaded");
  else if (exit_status != 0)
    return MILL_ERROR(code, "%s: %s is damaged: a process that read it ended with status %d; %s",
                      path, what, exit_status, cure);
  return MILL_OK;
}

int mill_h5_probe(enum mill_probe_kind kind, const char *path)
{
  int err = MILL_OK;
  int fd[2] = {-1, -1}, rc = 0, status = 0;
  pid_t child = -1;
  char message[MILL_ERROR_MESSAGE];
  struct stat here;
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  /* what is no HDF5 file the reader says better */
  if (!is_ready || stat(path, &here) != 0 || !S_ISREG(here.st_mode) || H5Fis_hdf5(path) <= 0)
    goto done;
  rc = pipe2(fd, O_CLOEXEC) != 0 ? errno : spawn(kind_of[kind].name, path, fd[1], &child);
  if (rc == 0) {
    close(fd[1]);
    fd[1] = -1;
    hear(fd[0], message, sizeof message);
    while ((rc = waitpid(child, &status, 0) < 0 ? errno : 0) == EINTR)
      ;
  }
  if (rc != 0)
    warn_untried(path, strerror(rc));
  else
    MILL_TRY(judge(kind, path, status, message));
done:
  if (fd[0] >= 0)
    close(fd[0]);
  if (fd[1] >= 0)
    close(fd[1]);
  return err;
}
