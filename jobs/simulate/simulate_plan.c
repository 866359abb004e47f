/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/simulate/simulate_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/files/sha256.h"
#include "io/library/library_file.h"
#include "kernels/base/error.h"
#include "kernels/base/memory.h"
#include "src/system/shipped_file.h"
#include "src/system/version.h"

int mill_simulate_library_read(mill_simulate_plan *plan)
{
  snprintf(plan->library, sizeof plan->library, "%s",
           plan->options.library ? plan->options.library : "");
  mill_shipped_library(plan->library, sizeof plan->library);
  if (!plan->library[0])
    return MILL_ERROR(MILL_ERR_USAGE,
                      "no library to draw stars from: give --library LIB.h5 (none was "
                      "shipped with this program: there is no share/starmill/" MILL_SHIPPED_LIBRARY
                      " next to its bin)");
  MILL_CHECK(mill_library_read(plan->library, &plan->lib));
  const int n_arm = plan->lib.n_arm;
  MILL_CHECK(mill_mock_cut_arms(&plan->lib));
  plan->was_cut = plan->lib.n_arm != n_arm;
  return MILL_OK;
}

void mill_simulate_path(const mill_simulate_plan *plan, const char *name, char out[MILL_MAX_PATH])
{
  const char *folder = plan->options.output;
  const size_t n = strlen(folder);
  snprintf(out, MILL_MAX_PATH, "%s%s%s", folder, n > 0 && folder[n - 1] == '/' ? "" : "/", name);
}

void mill_simulate_name(int i_file, int redrock, char out[MILL_SIMULATE_NAME])
{
  snprintf(out, MILL_SIMULATE_NAME, "%s-mock-%05d.fits", redrock ? "redrock" : "coadd", i_file);
}

int64_t mill_simulate_rows(const mill_simulate_plan *plan, int i_file)
{
  const int64_t n_left = plan->options.mock.n_star - (int64_t)i_file * plan->options.per_file;
  return n_left < plan->options.per_file ? n_left : plan->options.per_file;
}

/* The shortest text that is read back as the same number: what differs must look different. */
static const char *exact(double value, char out[32])
{
  for (int n_digit = 6; n_digit <= 17; n_digit++) {
    snprintf(out, 32, "%.*g", n_digit, value);
    if (strtod(out, NULL) == value)
      break;
  }
  return out;
}

/* Everything that the bytes of the survey depend on, in words. */
static void write_history(mill_simulate_plan *plan)
{
  enum { LINE = MILL_SIMULATE_HISTORY };
  const mill_mock_settings *mock = &plan->options.mock;
  char a[32], b[32], c[32], vsini[80] = "by the default mixture";
  mill_sha256 sha;
  if (mock->max_vsini > 0)
    snprintf(vsini, sizeof vsini, "%s to %s km/s", exact(mock->min_vsini, a),
             exact(mock->max_vsini, b));
  snprintf(plan->history[0], LINE,
           "starmill %s simulate: a mock survey (contents %d), no observation", mill_version(),
           MILL_MOCK_CONTENTS);
  snprintf(plan->history[1], LINE, "seed %llu, %lld stars, %d a file",
           (unsigned long long)mock->seed, (long long)mock->n_star, plan->options.per_file);
  static const char *const error[] = {"without", "with draws of", "with correlated draws of"};
  snprintf(plan->history[2], LINE, "library %s, %s its model error", plan->lib.hash,
           error[mock->model_error]);
  snprintf(plan->history[3], LINE, "S/N %s to %s, velocities %s km/s, v sin i %s",
           exact(mock->min_sn, a), exact(mock->max_sn, b), exact(mock->vel_sigma_km_s, c), vsini);
  snprintf(plan->history[4], LINE, "distortion %s%s", exact(mock->distortion, a),
           mock->noiseless ? ", noiseless" : "");
  snprintf(plan->history[5], LINE, "pathological %d per 1000, redrock %s", mock->n_pathological,
           plan->options.redrock ? "yes" : "no");
  mill_sha256_init(&sha);
  for (int i = 0; i < MILL_SIMULATE_N_HISTORY; i++) {
    plan->history_line[i] = plan->history[i];
    mill_sha256_update(&sha, plan->history[i], strlen(plan->history[i]) + 1);
  }
  mill_sha256_final(&sha, plan->id);
  plan->id[MILL_SIMULATE_ID] = '\0';
}

int mill_simulate_plan_make(mill_simulate_plan *plan)
{
  const mill_mock_settings *mock = &plan->options.mock;
  plan->n_file = (int)((mock->n_star + plan->options.per_file - 1) / plan->options.per_file);
  MILL_CHECK(MILL_ALLOC((size_t)plan->n_file * MILL_SIMULATE_NAME, &plan->name));
  MILL_CHECK(mill_alloc_bytes((size_t)plan->n_file, sizeof *plan->coadd, (void **)&plan->coadd));
  for (int f = 0; f < plan->n_file; f++) {
    char *name = plan->name + (size_t)f * MILL_SIMULATE_NAME;
    mill_simulate_name(f, 0, name);
    plan->coadd[f] = name;
  }
  write_history(plan);
  if (!plan->id[0])
    return MILL_ERROR(MILL_ERR_MEMORY, "no memory for a digest");
  MILL_CHECK(mill_mock_survey_create(mock, &plan->lib, &plan->survey));
  plan->origin = (mill_mock_origin){plan->id, MILL_SIMULATE_N_HISTORY, plan->history_line};
  return MILL_OK;
}

void mill_simulate_plan_clear(mill_simulate_plan *plan)
{
  mill_mock_survey_destroy(plan->survey);
  mill_library_clear(&plan->lib);
  mill_free(plan->name);
  mill_free(plan->coadd);
}
