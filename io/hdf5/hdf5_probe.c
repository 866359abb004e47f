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
  CPU_S = 10,              /* besides a second for each CPU_BYTES of the file */
  CPU_BYTES = 16 << 20,    /* a twentieth of what any machine does */
  MEMORY_FACTOR = 16,      /* times the file's size, besides memory_bytes and the program itself */
  SLAB_BYTES = 16 << 20,   /* read at a time */
  END_BYTES = 1 << 16,     /* of either end of data in one piece */
  MAX_ATTRIBUTE = 1 << 20, /* bytes; HDF5 itself takes 64 kB unless told otherwise */
  MAX_MESSAGE = 1024
};
/* the shadow of the address sanitizer is larger than any limit */
#if defined(__SANITIZE_ADDRESS__)
enum { LIMITS_MEMORY = 0 };
#elif defined(__has_feature)
enum { LIMITS_MEMORY = !__has_feature(address_sanitizer) };
#else
enum { LIMITS_MEMORY = 1 };
#endif
static const rlim_t memory_bytes = (rlim_t)512 << 20;

static const struct {
  const char *name, *what, *cure;
  int code;
} kind_of[N_KIND] = {
    [MILL_PROBE_LIBRARY] = {"library", "the library", "make or fetch it again", MILL_ERR_LIBRARY},
    [MILL_PROBE_EMULATOR] = {"emulator", "the emulator", "make or fetch it again",
                             MILL_ERR_LIBRARY},
    [MILL_PROBE_TABLE] = {"table", "the table to start from", "make or fetch it again",
                          MILL_ERR_CONFIG},
    [MILL_PROBE_RESULT] = {"result", "the result", "move it away, or fit anew with --overwrite",
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
  hid_t native = H5I_INVALID_HID;
  void *data = NULL;
  const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
  const hid_t type = attribute >= 0 ? H5Aget_type(attribute) : H5I_INVALID_HID;
  const hid_t space = attribute >= 0 ? H5Aget_space(attribute) : H5I_INVALID_HID;
  if (type >= 0 && space >= 0)
    native = H5Tget_native_type(type, H5T_DIR_ASCEND);
  if (native >= 0) {
    const hssize_t n = H5Sget_simple_extent_npoints(space);
    const size_t size = H5Tget_size(native);
    if (n > 0 && size > 0 && size <= MAX_ATTRIBUTE && n <= MAX_ATTRIBUTE / (hssize_t)size &&
        H5Tget_size(type) <= MAX_ATTRIBUTE)
      data = calloc((size_t)n, size);
    if (data && H5Aread(attribute, native, data) >= 0 &&
        (H5Tget_class(native) == H5T_VLEN || H5Tis_variable_str(native) > 0))
      H5Dvlen_reclaim(native, space, H5P_DEFAULT, data);
    free(data);
    H5Tclose(native);
  }
  if (space >= 0)
    H5Sclose(space);
  if (type >= 0)
    H5Tclose(type);
  if (attribute >= 0)
    H5Aclose(attribute);
  return 0;
}

static void read_slab(hid_t dataset, hid_t type, hid_t space, int n_dim, const hsize_t *dim,
                      hsize_t first, hsize_t n_row, void *data)
{
  hsize_t start[H5S_MAX_RANK] = {0}, count[H5S_MAX_RANK];
  memcpy(count, dim, (size_t)n_dim * sizeof *dim);
  start[0] = first;
  count[0] = n_row;
  const hid_t memory = H5Screate_simple(n_dim, count, NULL);
  if (memory >= 0 && H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0)
    (void)H5Dread(dataset, type, memory, space, H5P_DEFAULT, data);
  if (memory >= 0)
    H5Sclose(memory);
}

/* All rows, or those at the ends where HDF5 only copies what lies between. */
static void read_rows(hid_t dataset, hid_t type, hid_t space, int is_one_piece)
{
  hsize_t dim[H5S_MAX_RANK], row_bytes = H5Tget_size(type);
  const int n_dim = H5Sget_simple_extent_dims(space, dim, NULL);
  if (n_dim < 1 || row_bytes == 0 || dim[0] == 0)
    return;
  for (int i = 1; i < n_dim; i++)
    if (__builtin_mul_overflow(row_bytes, dim[i], &row_bytes))
      return;
  if (row_bytes == 0 || row_bytes > SLAB_BYTES)
    return;
  hsize_t n_slab = (is_one_piece ? END_BYTES : SLAB_BYTES) / row_bytes;
  if (n_slab == 0)
    n_slab = 1;
  if (n_slab > dim[0])
    n_slab = dim[0];
  void *data = calloc(n_slab, row_bytes);
  if (!data)
    return;
  if (is_one_piece) {
    read_slab(dataset, type, space, n_dim, dim, 0, n_slab, data);
    read_slab(dataset, type, space, n_dim, dim, dim[0] - n_slab, n_slab, data);
  } else {
    for (hsize_t at = 0; at < dim[0]; at += n_slab)
      read_slab(dataset, type, space, n_dim, dim, at, at + n_slab < dim[0] ? n_slab : dim[0] - at,
                data);
  }
  free(data);
}

/* As the readers of tables and results do: numbers of these two types, texts of fixed length. */
static void read_dataset(hid_t dataset)
{
  const hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
  const hid_t creation = H5Dget_create_plist(dataset);
  if (type >= 0 && space >= 0 && creation >= 0) {
    const H5T_class_t class = H5Tget_class(type);
    const int is_number = H5Tget_size(type) <= MILL_H5_MAX_NUMBER;
    const int is_one_piece = H5Pget_layout(creation) != H5D_CHUNKED;
    /* chunks that were never written take time and no room: they could be any number */
    if (H5Dget_storage_size(dataset) == 0 || H5Pget_external_count(creation) != 0 ||
        H5Pget_layout(creation) == H5D_VIRTUAL)
      goto close;
    if (is_number && (class == H5T_INTEGER || class == H5T_ENUM))
      read_rows(dataset, H5T_NATIVE_LLONG, space, is_one_piece);
    else if (is_number && class == H5T_FLOAT)
      read_rows(dataset, H5T_NATIVE_DOUBLE, space, is_one_piece);
    else if (class == H5T_STRING && H5Tis_variable_str(type) == 0)
      read_rows(dataset, type, space, is_one_piece);
  }
close:
  if (creation >= 0)
    H5Pclose(creation);
  if (space >= 0)
    H5Sclose(space);
  if (type >= 0)
    H5Tclose(type);
}

static void read_object(hid_t object)
{
  hsize_t at = 0;
  (void)H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &at, read_attribute, NULL);
  if (H5Iget_type(object) == H5I_DATASET)
    read_dataset(object);
}

static herr_t read_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
  (void)context;
  if (info->type != H5L_TYPE_HARD)
    return 0;
  const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
  if (object >= 0) {
    read_object(object);
    H5Oclose(object);
  }
  return 0;
}

/* Did it fail for want of memory?  The reader would get all of the machine's. */
static int wants_memory(const char *path)
{
  const char *message = mill_error_message();
  const size_t n = strlen(path);
  return strstr(message + (strncmp(message, path, n) == 0 ? n : 0), "alloc") != NULL;
}

/* What HDF5 finds wrong by itself its reader finds again and says in its own words; but whoever
 * continues a result must not write through it into other files. */
static int read_everything(enum mill_probe_kind kind, const char *path)
{
  int err = MILL_OK;
  mill_h5_file file = {.id = H5I_INVALID_HID};
  const int opened = mill_h5_open(path, kind_of[kind].code, &file);
  if (opened != MILL_OK)
    return wants_memory(path) ? opened : MILL_OK;
  const int scanned = mill_h5_scan(&file);
  if (kind == MILL_PROBE_RESULT || (scanned != MILL_OK && wants_memory(path)))
    err = scanned;
  read_object(file.id);
  (void)H5Lvisit(file.id, H5_INDEX_NAME, H5_ITER_INC, read_link, NULL);
  mill_h5_close(&file);
  return err;
}

/* ---- the child: limits ---------------------------------------------------------------------- */

static rlim_t at_most(rlim_t value, rlim_t limit)
{
  return limit != RLIM_INFINITY && limit < value ? limit : value;
}

static void lower_limit(int resource, rlim_t soft, rlim_t hard)
{
  struct rlimit limit;
  if (getrlimit(resource, &limit) != 0)
    return;
  hard = at_most(hard, limit.rlim_max);
  limit = (struct rlimit){at_most(soft, hard), hard};
  (void)setrlimit(resource, &limit);
}

/* Address space that the program has from its start: libraries of GPUs take much. */
static rlim_t own_memory(void)
{
  unsigned long n_page = 0;
  FILE *stream = fopen("/proc/self/statm", "re");
  if (stream) {
    if (fscanf(stream, "%lu", &n_page) != 1)
      n_page = 0;
    fclose(stream);
  }
  return (rlim_t)n_page * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* A child that goes astray takes neither the node's memory nor its time, writes nothing and
 * leaves no core. */
static void limit_myself(const char *path)
{
  struct stat status;
  const rlim_t n_byte = stat(path, &status) == 0 ? (rlim_t)status.st_size : 0;
  const rlim_t cpu_s = CPU_S + n_byte / CPU_BYTES;
  lower_limit(RLIMIT_CORE, 0, 0);
  lower_limit(RLIMIT_FSIZE, 0, 0);
  lower_limit(RLIMIT_CPU, cpu_s, cpu_s + 5); /* at the first SIGXCPU, which says why */
  if (LIMITS_MEMORY) {
    const rlim_t n_memory = own_memory() + memory_bytes + MEMORY_FACTOR * n_byte;
    lower_limit(RLIMIT_AS, n_memory, n_memory);
  }
}

static int find_kind(const char *name)
{
  for (int kind = 0; kind < N_KIND; kind++)
    if (strcmp(name, kind_of[kind].name) == 0)
      return kind;
  return -1;
}

void mill_h5_probe_main(int argc, char **argv)
{
  is_ready = 1;
  if (argc != 4 || strcmp(argv[1], "probe") != 0)
    return;
  const int kind = find_kind(argv[2]);
  if (kind < 0)
    return;
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit_myself(argv[3]);
  const int err = read_everything(kind, argv[3]);
  if (err != MILL_OK)
    dprintf(STDOUT_FILENO, "%s", mill_error_message());
  _exit(err == MILL_OK ? 0 : REFUSED + err); /* HDF5's own end is not needed, and may crash */
}

/* ---- the parent ----------------------------------------------------------------------------- */

/* The file of this program.  The link says it also under valgrind, itself it does not; of a
 * program that was replaced or removed since only the link still leads to it. */
static const char *own_program(char *path, size_t size)
{
  static const char self[] = "/proc/self/exe";
  const ssize_t n = readlink(self, path, size - 1);
  if (n <= 0)
    return self;
  path[n] = '\0';
  return access(path, X_OK) == 0 ? path : self;
}

/* The child starts with one thread: OpenBLAS and OpenMP make theirs at once. */
static int child_environment(char ***out)
{
  int err = MILL_OK;
  static char one_blas[] = "OPENBLAS_NUM_THREADS=1", one_omp[] = "OMP_NUM_THREADS=1";
  size_t n = 0, m = 0;
  while (environ[n])
    n++;
  MILL_TRY(MILL_ALLOC(n + 3, out));
  for (size_t i = 0; i < n; i++)
    if (strncmp(environ[i], one_blas, sizeof one_blas - 2) != 0 &&
        strncmp(environ[i], one_omp, sizeof one_omp - 2) != 0)
      (*out)[m++] = environ[i];
  (*out)[m++] = one_blas;
  (*out)[m] = one_omp;
done:
  return err;
}

/* *rc is what the system said; the child writes into fd and sees no signal that is meant for the
 * run. */
static int spawn(const char *kind, const char *path, int fd, pid_t *child, int *rc)
{
  int err = MILL_OK;
  static char name[] = "starmill", probe[] = "probe";
  char program[4096];
  char **environment = NULL;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t blocked, deadly;
  int n_made = 0;
  MILL_TRY(child_environment(&environment));
  if (posix_spawn_file_actions_init(&actions) != 0)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory to start a process");
  n_made++;
  if (posix_spawnattr_init(&attributes) != 0)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory to start a process");
  n_made++;
  sigemptyset(&blocked);
  for (size_t i = 0; i < 5; i++)
    sigaddset(&blocked, (const int[]){SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP}[i]);
  sigemptyset(&deadly);
  for (size_t i = 0; i < 6; i++)
    sigaddset(&deadly, (const int[]){SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU}[i]);
  if (posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0) != 0 ||
      posix_spawn_file_actions_adddup2(&actions, fd, STDOUT_FILENO) != 0 ||
      posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) != 0 ||
      posix_spawnattr_setsigmask(&attributes, &blocked) != 0 ||
      posix_spawnattr_setsigdefault(&attributes, &deadly) != 0 ||
      posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) != 0)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory to start a process");
  char *const argv[] = {name, probe, (char *)(uintptr_t)kind, (char *)(uintptr_t)path, NULL};
  *rc = posix_spawn(child, own_program(program, sizeof program), &actions, &attributes, argv,
                    environment);
done:
  if (n_made > 1)
    posix_spawnattr_destroy(&attributes);
  if (n_made > 0)
    posix_spawn_file_actions_destroy(&actions);
  mill_free(environment);
  return err;
}

/* All that the child says, as printable text. */
static void hear(int fd, char *text, size_t size)
{
  size_t n = 0;
  for (;;) {
    char rest[256];
    const int is_full = n + 1 >= size;
    const ssize_t got = read(fd, is_full ? rest : text + n, is_full ? sizeof rest : size - 1 - n);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      break;
    n += is_full ? 0 : (size_t)got;
  }
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
  int err = MILL_OK;
  const char *what = kind_of[kind].what, *cure = kind_of[kind].cure;
  const int code = kind_of[kind].code;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
    MILL_FAIL(code, "%s: %s is damaged: a process that read it came to no end within its time; %s",
              path, what, cure);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
    MILL_FAIL(code,
              "%s: a process that read it was killed, which happens where memory is short: run it "
              "again with more; if that does not help, %s",
              path, cure);
  if (WIFSIGNALED(status))
    MILL_FAIL(code, "%s: %s is damaged: a process that read it died of signal %d (%s); %s", path,
              what, WTERMSIG(status), strsignal(WTERMSIG(status)), cure);
  const int exit_status = WEXITSTATUS(status);
  if (exit_status == NOT_STARTED) {
    warn_untried(path, "its program cannot be loaded");
    goto done;
  }
  if (exit_status > REFUSED && exit_status < REFUSED + MILL_N_ERROR && message[0])
    MILL_FAIL(exit_status - REFUSED, "%s; %s", message, cure);
  if (exit_status != 0)
    MILL_FAIL(code, "%s: %s is damaged: a process that read it ended with status %d; %s", path,
              what, exit_status, cure);
done:
  return err;
}

/* Nothing to be read by HDF5: what it is instead the reader says better. */
static int is_hdf5(const char *path)
{
  static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  unsigned char first[8];
  struct stat status;
  /* a pipe would block in open() without O_NONBLOCK */
  const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return 0;
  int found = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  /* behind a block of the user's it may begin at any power of two from 512 */
  for (off_t at = 0; found; at = at ? 2 * at : 512) {
    if (pread(fd, first, sizeof first, at) != (ssize_t)sizeof first)
      found = 0;
    else if (memcmp(first, signature, sizeof signature) == 0)
      break;
  }
  close(fd);
  return found;
}

int mill_h5_probe(enum mill_probe_kind kind, const char *path)
{
  int err = MILL_OK;
  int fd[2] = {-1, -1}, rc = 0, status = 0;
  pid_t child = -1;
  char message[MAX_MESSAGE];
  if (!is_ready || !is_hdf5(path))
    goto done;
  if (pipe2(fd, O_CLOEXEC) != 0)
    rc = errno;
  else
    MILL_TRY(spawn(kind_of[kind].name, path, fd[1], &child, &rc));
  if (rc != 0) {
    warn_untried(path, strerror(rc));
    goto done;
  }
  close(fd[1]);
  fd[1] = -1;
  hear(fd[0], message, sizeof message);
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) {
      warn_untried(path, strerror(errno));
      goto done;
    }
  MILL_TRY(judge(kind, path, status, message));
done:
  if (fd[0] >= 0)
    close(fd[0]);
  if (fd[1] >= 0)
    close(fd[1]);
  return err;
}
