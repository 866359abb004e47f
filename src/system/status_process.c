/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/status_process.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/memory.h"
#include "src/system/regular_file.h"

/* Read the number of kB after a name in a file of /proc; 0: not there. */
static int64_t read_kb(const char *path, const char *name)
{
  char line[256];
  const size_t n = strlen(name);
  long long value = 0;
  MILL_AT_END(mill_stream_close) FILE *file = fopen(path, "re");
  while (file && fgets(line, sizeof line, file))
    if (strncmp(line, name, n) == 0 && line[n] == ':')
      return sscanf(line + n + 1, "%lld kB", &value) == 1 ? value : 0;
  return 0;
}

void mill_process_memory(int64_t *resident, int64_t *peak)
{
  struct rusage usage;
  *resident = 1024 * read_kb("/proc/self/status", "VmRSS");
  *peak = 1024 * read_kb("/proc/self/status", "VmHWM");
  if (*peak == 0 && getrusage(RUSAGE_SELF, &usage) == 0)
    *peak = 1024 * (int64_t)usage.ru_maxrss;
  if (*resident > *peak) /* the two values are from different moments */
    *peak = *resident;
}

/* Read the number in a file; 0: no number, as in "max". */
static int64_t read_number(const char *path)
{
  long long value = 0;
  MILL_AT_END(mill_stream_close) FILE *file = fopen(path, "re");
  return file && fscanf(file, "%lld", &value) == 1 ? value : 0;
}

void mill_machine_memory(int64_t *total, int64_t *available, int64_t *limit)
{
  char line[512], group[512], path[768];
  *total = 1024 * read_kb("/proc/meminfo", "MemTotal");
  *available = 1024 * read_kb("/proc/meminfo", "MemAvailable");
  *limit = 0;
  MILL_AT_END(mill_stream_close) FILE *file = fopen("/proc/self/cgroup", "re");
  while (file && fgets(line, sizeof line, file)) {
    /* "0::PATH" in version 2 of control groups, "NUMBER:memory:PATH" in version 1 */
    const int is_v2 = sscanf(line, "0::%511[^\n]", group) == 1;
    if (!is_v2 && sscanf(line, "%*d:memory:%511[^\n]", group) != 1)
      continue;
    /* a parent group's limit counts, too; a container sees its own control group as the root */
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
      *end = '\0';
      snprintf(path, sizeof path, "/sys/fs/cgroup%s%s/memory.%s", is_v2 ? "" : "/memory", group,
               is_v2 ? "max" : "limit_in_bytes");
      const int64_t found = read_number(path);
      if (found > 0 && found < *total && (*limit == 0 || found < *limit))
        *limit = found;
    }
  }
}

void mill_host_name(char *out, size_t size)
{
  if (gethostname(out, size) != 0 || !out[0])
    snprintf(out, size, "unknown");
  out[size - 1] = '\0';
}

void mill_cpu_model(char *out, size_t size)
{
  char line[256];
  snprintf(out, size, "unknown processor");
  MILL_AT_END(mill_stream_close) FILE *file = fopen("/proc/cpuinfo", "re");
  while (file && fgets(line, sizeof line, file)) {
    const char *value = strchr(line, ':');
    if (strncmp(line, "model name", 10) == 0 && value) {
      line[strcspn(line, "\n")] = '\0';
      snprintf(out, size, "%s", value + 1 + strspn(value + 1, " "));
      return;
    }
  }
}

int mill_process_look(int64_t pid, char *state, unsigned long long *start)
{
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
  MILL_AT_END(mill_stream_close) FILE *file = fopen(path, "re");
  const size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
  text[n] = '\0';
  /* format "pid (name) state ...": the name may contain anything; the start time is value 22 */
  const char *after = strrchr(text, ')');
  return after && sscanf(after + 1,
                         " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                         "%*s %llu",
                         state, start) == 2;
}

int mill_process_alive(int64_t pid)
{
  char state = 0;
  unsigned long long start = 0;
  if (pid <= 0 || (kill((pid_t)pid, 0) != 0 && errno == ESRCH))
    return 0;
  return !mill_process_look(pid, &state, &start) || (state != 'Z' && state != 'X');
}

void mill_utc_text(double unix_s, char out[MILL_UTC_SIZE])
{
  struct tm utc;
  const time_t t = (time_t)floor(unix_s);
  out[0] = '\0';
  if (gmtime_r(&t, &utc))
    strftime(out, MILL_UTC_SIZE, "%Y-%m-%dT%H:%M:%SZ", &utc);
}
