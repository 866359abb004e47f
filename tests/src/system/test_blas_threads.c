/* SPDX-License-Identifier: BSD-3-Clause */
/* BLAS works, or says why, before OpenBLAS asks for memory for ever. */
#include "tests/mill_test.h"

#include <cblas.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "kernels/base/error.h"
#include "src/system/blas_threads.h"

/* Bytes of address space that the process has. */
static size_t address_space(void)
{
  unsigned long n_page = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%lu", &n_page), 1);
  fclose(file);
  return n_page * (size_t)sysconf(_SC_PAGESIZE);
}

/* In a process of its own, since a limit and what OpenBLAS has stay: 0 as it should be. */
static int begin_within(size_t more, int expected)
{
  const pid_t child = fork();
  if (child == 0) {
    struct rlimit limit = {0};
    float x = 1, y = 2;
    int before = 0;
    alarm(20);
    limit.rlim_cur = limit.rlim_max = address_space() + more;
    if (setrlimit(RLIMIT_AS, &limit) != 0)
      _exit(2);
    const int err = mill_blas_begin(1, &before);
    const int told = err == MILL_OK || (strstr(mill_error_message(), "OpenBLAS needs 1 times") &&
                                        strstr(mill_error_message(), "ulimit -v"));
    if (err == MILL_OK)
      cblas_saxpy(1, 2, &x, 1, &y, 1);
    mill_blas_end(before);
    if (before == 0) /* another BLAS: nothing is asked for */
      _exit(err != MILL_OK);
    _exit(err != expected || !told || y != (err == MILL_OK ? 4 : 2));
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

MILL_TEST(memory_is_asked_for_first)
{
  if (begin_within((size_t)4 << 30, MILL_OK) != 0)
    fail_msg("it does not work with 4 GiB");
  if (begin_within((size_t)100 << 20, MILL_ERR_MEMORY) != 0)
    fail_msg("it does not say that 100 MiB are too few");
}

MILL_TEST_MAIN(NULL, NULL)
