/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/run/crossover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/memory.h"
#include "src/system/regular_file.h"

static const char first_line[] = "# starmill bench crossover: kind, size, threads, date, "
                                 "revision, GPU, CPU (tabs between)\n";

enum { MAX_LINE = 512 };

static const struct {
  const char *word, *unit;
} kinds[MILL_N_CROSSOVER_KIND] = {{"fit", "rows a rank"},
                                  {"train", "million operations of a rank's step"}};

int64_t mill_crossover_of(int n, const mill_crossover_point *point)
{
  int64_t from = 0; /* the GPU was faster from this size up to that of point i */
  for (int i = 0; i < n; i++) {
    if (point[i].cpu_s < 0.0 || point[i].gpu_s < 0.0) /* not measured on both */
      continue;
    if (!(point[i].gpu_s < point[i].cpu_s))
      from = 0;
    else if (from == 0)
      from = point[i].size;
  }
  return from;
}

int mill_crossover_wants_gpu(const mill_crossover *measured, int64_t size)
{
  return measured && measured->from > 0 && size >= measured->from;
}

const char *mill_crossover_unit(enum mill_crossover_kind kind)
{
  return kinds[kind].unit;
}

int mill_crossover_path(char path[MILL_CROSSOVER_PATH])
{
  const char *file = getenv("STARMILL_CROSSOVER"), *cache = getenv("XDG_CACHE_HOME"),
             *home = getenv("HOME");
  int n;
  if (file && file[0])
    n = snprintf(path, MILL_CROSSOVER_PATH, "%s", file);
  else if (cache && cache[0] == '/') /* the XDG standard says to ignore a relative path */
    n = snprintf(path, MILL_CROSSOVER_PATH, "%s/starmill/crossover", cache);
  else if (home && home[0])
    n = snprintf(path, MILL_CROSSOVER_PATH, "%s/.cache/starmill/crossover", home);
  else
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "no home folder to store the crossover in: set STARMILL_CROSSOVER to a file");
  if (n >= MILL_CROSSOVER_PATH)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "set STARMILL_CROSSOVER to a shorter path; %d bytes are too many", n);
  return MILL_OK;
}

/* Parse a line of the file; returns 0 if it is not a measurement. */
static int parse_line(const char *line, mill_crossover *out)
{
  enum { WORD, FROM, THREADS, DATE, REVISION, GPU, CPU, N_FIELD };
  char text[MAX_LINE], *rest = text, *field[N_FIELD];
  int n = 0;
  long long from = -1;
  memset(out, 0, sizeof *out);
  snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
  while (rest && n < N_FIELD) /* scanf would fail at an empty revision */
    field[n++] = strsep(&rest, "\t");
  if (n < N_FIELD || rest || sscanf(field[FROM], "%lld", &from) != 1 ||
      sscanf(field[THREADS], "%d", &out->n_thread) != 1)
    return 0;
  out->from = from;
  snprintf(out->date, sizeof out->date, "%s", field[DATE]);
  snprintf(out->revision, sizeof out->revision, "%s", field[REVISION]);
  snprintf(out->gpu, sizeof out->gpu, "%s", field[GPU]);
  snprintf(out->cpu, sizeof out->cpu, "%s", field[CPU]);
  while (out->kind < MILL_N_CROSSOVER_KIND && strcmp(field[WORD], kinds[out->kind].word) != 0)
    out->kind++;
  return out->kind < MILL_N_CROSSOVER_KIND && out->from >= 0 && out->n_thread >= 1;
}

static int is_same(const mill_crossover *line, enum mill_crossover_kind kind, const char *gpu,
                   const char *cpu, int n_thread)
{
  return line->kind == kind && line->n_thread == n_thread && strcmp(line->gpu, gpu) == 0 &&
         strcmp(line->cpu, cpu) == 0;
}

int mill_crossover_find(const char *path, enum mill_crossover_kind kind, const char *gpu,
                        const char *cpu, int n_thread, mill_crossover *out, int *found)
{
  int i_line = 0;
  char text[MAX_LINE];
  MILL_AT_END(mill_stream_close) FILE *file = fopen(path, "r");
  *found = 0;
  if (!file && (errno == ENOENT || errno == ENOTDIR))
    return MILL_OK;
  if (!file)
    return MILL_ERROR(MILL_ERR_CONFIG, "%s cannot be read: %s", path, strerror(errno));
  while (!*found && fgets(text, sizeof text, file)) {
    i_line++;
    if (text[0] == '#' || text[0] == '\n')
      continue;
    if (!parse_line(text, out))
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "%s, line %d, was not written by starmill bench: remove the file", path,
                        i_line);
    *found = is_same(out, kind, gpu, cpu, n_thread);
  }
  return MILL_OK;
}

/* Make all folders above the file. */
static int make_folders(const char *path)
{
  char folder[MILL_CROSSOVER_PATH];
  snprintf(folder, sizeof folder, "%s", path);
  for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
    *at = '\0';
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
      return MILL_ERROR(MILL_ERR_OUTPUT, "the folder %s for crossovers cannot be made: %s", folder,
                        strerror(errno));
    *at = '/';
  }
  return MILL_OK;
}

static void print_line(FILE *out, const mill_crossover *line)
{
  fprintf(out, "%s\t%lld\t%d\t%s\t%s\t%s\t%s\n", kinds[line->kind].word, (long long)line->from,
          line->n_thread, line->date, line->revision, line->gpu, line->cpu);
}

int mill_crossover_keep(const char *path, const mill_crossover *line)
{
  char text[MAX_LINE], temporary[MILL_CROSSOVER_PATH + 32];
  mill_crossover other;
  MILL_CHECK(make_folders(path));
  snprintf(temporary, sizeof temporary, "%s.tmp-%d", path, (int)getpid());
  FILE *out = fopen(temporary, "we");
  if (!out)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s cannot be written: %s", path, strerror(errno));
  fputs(first_line, out);
  print_line(out, line);
  FILE *in = fopen(path, "re");
  while (in && fgets(text, sizeof text, in))
    if (text[0] != '#' && parse_line(text, &other) &&
        !is_same(&other, line->kind, line->gpu, line->cpu, line->n_thread))
      print_line(out, &other);
  if (in)
    fclose(in);
  const int failed = ferror(out);
  if (fclose(out) != 0 || failed || rename(temporary, path) != 0) {
    unlink(temporary);
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s cannot be written: %s", path, strerror(errno));
  }
  return MILL_OK;
}
