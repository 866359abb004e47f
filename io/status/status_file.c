/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/status/status_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "src/system/status_process.h"
#include "src/system/version.h"

#define NAME(symbol, name, ...)                  name,
#define STATUS_NAME(symbol, code, name, meaning) name,
static const char *const stage_name[] = {MILL_RANK_STAGE_LIST(NAME)};
static const char *const purpose_name[] = {MILL_PURPOSE_LIST(NAME)};
static const char *const status_name[] = {MILL_STATUS_LIST(STATUS_NAME)};

int64_t mill_status_rows(const int64_t n_status[MILL_N_STATUS], int from)
{
  int64_t n = 0;
  for (int s = from; s < MILL_N_STATUS; s++)
    n += n_status[s];
  return n;
}

static void put_utc(mill_json *json, const char *key, double unix_s)
{
  char text[MILL_UTC_SIZE];
  mill_utc_text(unix_s, text);
  mill_json_text(json, key, unix_s > 0 ? text : NULL);
}

static void put_known(mill_json *json, const char *key, int is_known, int64_t value)
{
  if (is_known)
    mill_json_integer(json, key, value);
  else
    mill_json_text(json, key, NULL);
}

/* Print the state of one rank as a JSON object. */
static void put_rank(mill_json *json, const mill_status_text *what, const mill_rank_state *r)
{
  const int64_t n_done = mill_status_rows(r->n_status, MILL_STATUS_FITTED);
  mill_json_open(json, NULL, '{');
  mill_json_integer(json, "rank", r->rank);
  mill_json_text(json, "host", r->host);
  mill_json_integer(json, "pid", r->pid);
  mill_json_text(json, "backend", r->backend);
  mill_json_text(json, "stage", stage_name[r->stage]);
  mill_json_integer(json, "done", n_done);
  mill_json_integer(json, "failed", n_done - r->n_status[MILL_STATUS_FITTED]);
  mill_json_text(json, "file",
                 r->i_file >= 0 && r->i_file < what->plan->n_file ? what->plan->file[r->i_file].path
                                                                  : NULL);
  put_utc(json, "last_star", r->sign_s);
  mill_json_integer(json, "resident_bytes", r->resident);
  mill_json_integer(json, "peak_bytes", r->peak);
  mill_json_open(json, "memory_bytes", '{');
  for (int p = 0; p < MILL_N_PURPOSE; p++)
    mill_json_integer(json, purpose_name[p], r->bytes[p]);
  mill_json_close(json);
  if (r->has_gpu) {
    mill_json_open(json, "gpu", '{');
    mill_json_text(json, "name", r->gpu_name);
    put_known(json, "busy_percent", r->gpu_percent >= 0, r->gpu_percent);
    mill_json_integer(json, "used_bytes", r->gpu_used);
    mill_json_integer(json, "total_bytes", r->gpu_total);
    mill_json_close(json);
  } else {
    mill_json_text(json, "gpu", NULL);
  }
  mill_json_text(json, "error", r->code != MILL_OK ? r->error : NULL);
  mill_json_close(json);
}

/* Print the counts of rows by outcome, earlier runs included, the rate and the time left. */
static void put_counts(mill_json *json, const mill_status_text *what)
{
  const mill_board_plan *plan = what->plan;
  int64_t n[MILL_N_STATUS];
  for (int s = 0; s < MILL_N_STATUS; s++) {
    n[s] = plan->base[s];
    for (int r = 0; r < what->n_rank; r++)
      n[s] += what->rank[r].n_status[s];
  }
  /* once the result is closed, its own counts are exact */
  if (what->end && what->end->summary)
    memcpy(n, what->end->summary->n_status, sizeof n);
  const int64_t n_done = mill_status_rows(n, MILL_STATUS_FITTED), n_left = plan->n_row - n_done;
  const double mean = what->elapsed_s > 0 ? (double)what->n_done_here / what->elapsed_s : 0;
  const double rate = isfinite(what->rate) ? what->rate : mean;
  mill_json_integer(json, "rows", plan->n_row);
  mill_json_integer(json, "done", n_done);
  mill_json_integer(json, "done_in_this_run", what->n_done_here);
  mill_json_integer(json, "fitted", n[MILL_STATUS_FITTED]);
  mill_json_integer(json, "failed", n_done - n[MILL_STATUS_FITTED]);
  mill_json_open(json, "failed_by_reason", '{');
  for (int s = MILL_STATUS_FITTED + 1; s < MILL_N_STATUS; s++)
    if (n[s] > 0)
      mill_json_integer(json, status_name[s], n[s]);
  mill_json_close(json);
  mill_json_integer(json, "remaining", n_left);
  mill_json_integer(json, "files", plan->n_file);
  mill_json_integer(json, "files_unreadable", plan->n_unreadable);
  mill_json_real(json, "rows_per_s", what->end ? 0.0 : rate);
  mill_json_real(json, "mean_rows_per_s", mean);
  double left_s = n_left == 0 ? 0.0 : (double)NAN; /* NaN: unknown */
  if (n_left != 0 && !what->end && rate > 0)
    left_s = (double)n_left / rate;
  mill_json_real(json, "left_s", left_s);
}

/* Print exit status and error: of the rank that failed first, or of all ranks together. */
static void put_end(mill_json *json, const mill_status_text *what)
{
  int rank = -1; /* the first to fail, by the ranks' own clocks */
  for (int r = 0; r < what->n_rank; r++)
    if (what->rank[r].code != MILL_OK &&
        (rank < 0 || what->rank[r].failed_s < what->rank[rank].failed_s))
      rank = r;
  put_known(json, "exit_status", what->end != NULL, what->end ? what->end->exit_status : 0);
  if (rank < 0 && !(what->end && what->end->code != MILL_OK)) {
    mill_json_text(json, "error", NULL);
    return;
  }
  mill_json_open(json, "error", '{');
  put_known(json, "rank", rank >= 0, rank); /* rank -1: all ranks failed together */
  mill_json_text(json, "message", rank >= 0 ? what->rank[rank].error : what->end->message);
  mill_json_close(json);
}

int mill_status_print(const mill_status_text *what, FILE *out)
{
  const mill_board_plan *plan = what->plan;
  const mill_board_end *end = what->end;
  const char *job = getenv("SLURM_JOB_ID");
  char host[64];
  mill_json json = {.out = out};
  mill_host_name(host, sizeof host);
  mill_json_open(&json, NULL, '{');
  mill_json_text(&json, "format", "starmill status"); /* first, as in MILL_STATUS_SIGNATURE */
  mill_json_integer(&json, "format_version", MILL_STATUS_VERSION);
  mill_json_text(&json, "state",
                 !end                                                           ? "running"
                 : end->code != MILL_OK                                         ? "failed"
                 : end->exit_status == mill_error_exit_status(MILL_ERR_STOPPED) ? "stopped"
                                                                                : "finished");
  put_end(&json, what);
  put_utc(&json, "updated", mill_unix_s());
  put_utc(&json, "started", what->start_unix_s);
  mill_json_real(&json, "elapsed_s", what->elapsed_s);
  mill_json_real(&json, "interval_s", plan->interval_s);
  put_counts(&json, what);
  mill_json_text(&json, "output", plan->output);
  mill_json_text(&json, "models", plan->models);
  mill_json_text(&json, "command", plan->command);
  mill_json_text(&json, "version", mill_version());
  mill_json_text(&json, "backend", plan->backend);
  mill_json_integer(&json, "threads", plan->n_thread);
  mill_json_integer(&json, "slots", plan->n_slot);
  mill_json_text(&json, "host", host);
  mill_json_integer(&json, "pid", (int64_t)getpid());
  mill_json_text(&json, "slurm_job", job && job[0] ? job : NULL);
  mill_json_open(&json, "ranks", '[');
  for (int r = 0; r < what->n_rank; r++)
    put_rank(&json, what, &what->rank[r]);
  mill_json_close(&json);
  return mill_json_close(&json);
}

/* ---- memory ---- */

static double mib(int64_t bytes)
{
  return (double)bytes / (1 << 20);
}

static void print_purposes(const mill_rank_state *r, FILE *out)
{
  for (int p = 0; p < MILL_N_PURPOSE; p++) {
    char name[32];
    snprintf(name, sizeof name, "%s", purpose_name[p]);
    for (char *c = name; *c; c++)
      *c = *c == '_' ? ' ' : *c;
    fprintf(out, "%s%s %.0f", p > 0 ? ", " : "", name, mib(r->bytes[p]));
  }
}

void mill_status_print_memory(int n_rank, const mill_rank_state *rank, FILE *out)
{
  const mill_rank_state *largest = &rank[0], *smallest = &rank[0];
  int64_t sum = 0;
  for (int r = 0; r < n_rank; r++) {
    sum += rank[r].peak;
    largest = rank[r].peak > largest->peak ? &rank[r] : largest;
    smallest = rank[r].peak < smallest->peak ? &rank[r] : smallest;
  }
  if (n_rank == 1)
    fprintf(out, "memory       peak %.0f MiB", mib(largest->peak));
  else
    fprintf(out, "memory       rank peaks: sum %.0f MiB, least %.0f (rank %d), most %.0f (rank %d)",
            mib(sum), mib(smallest->peak), smallest->rank, mib(largest->peak), largest->rank);
  fputs(strncmp(largest->backend, "cuda", 4) == 0 ? "; on the device: " : "; of it ", out);
  print_purposes(largest, out);
  if (largest->has_gpu)
    fprintf(out, "; %s: %.0f of %.0f in use", largest->gpu_name, mib(largest->gpu_used),
            mib(largest->gpu_total));
  fputc('\n', out);
  for (int r = 0; r < n_rank && n_rank > 1 && n_rank <= 8; r++)
    fprintf(out, "  rank %-4d peak %.0f MiB\n", rank[r].rank, mib(rank[r].peak));
}

int mill_status_path(const char *output, char *out)
{
  if (snprintf(out, MILL_STATUS_PATH, "%s.status.json", output) >= MILL_STATUS_PATH)
    return MILL_ERROR(MILL_ERR_USAGE, "the output's path has %zu bytes, more than %d: shorten it",
                      strlen(output), MILL_STATUS_PATH - (int)sizeof ".status.json");
  return MILL_OK;
}
