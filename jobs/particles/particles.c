/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobs/jobs.h"

#include <limits.h>

#include "io/files/sha256.h"
#include "io/particles/particle_file.h"
#include "src/run/backend_choice.h"
#include "jobs/options/job_steps.h"
#include "kernels/base/clock.h"
#include "kernels/gpu.h"
#include "src/config/text.h"
#include "src/ranks/same_on_ranks.h"
#include "src/system/file_roles.h"
#include "src/system/log.h"
#include "src/system/regular_file.h"
#include "src/system/stop_signal.h"
#include "src/system/thread.h"

enum {
  ROUND_BYTES = 128 << 20, /* rank 0's memory for the results of a round, about */
  MOST_IN_ROUND = 4096,    /* problems of a rank in a round */
  ROUND_S = 10,            /* time of a round, about: the job can stop between rounds */
  THREAD_PARTICLES = 4096, /* particles that keep a thread busy */
  GPU_THREADS = 64         /* a GPU needs as many particles as this many threads */
};

typedef struct particle_options {
  int help, overwrite, quiet, n_thread, backend;
  const char *output, *config;
} particle_options;

typedef struct particle_job {
  mill_mpi mpi;
  particle_options options;
  mill_particle_config config;
  double *sample; /* the owned array behind config.setup.sample */
  const mill_particle_ops *ops;
  int is_gpu;
  mill_particle_file *file; /* result file, on rank 0 */
  unsigned char *status;    /* [n_problem]; only rank 0 keeps it up to date */
  int64_t *todo, n_todo;
  /* doubles in a problem's results; n_result: sum of the other four, plus 1 for bad_step */
  size_t n_density, n_bound, n_moment, n_position, n_result;
  int n_most, n_round; /* problems of a rank: most in a round, and in this round */
  double *result;      /* [n_most][n_result]; on rank 0 [ranks][n_most][n_result] */
} particle_job;

#define AT(member) MILL_AT(particle_options, member)

static const mill_option_table table = {
    "starmill particles",
    "usage: starmill particles CONFIG.yaml --output OUT.h5 [options]\n"
    "\n"
    "Move particles, dX = -grad U(t, X) dt + sqrt(2 D) dW, and write their density, smoothed by a\n"
    "Gaussian kernel.  A problem is one cloud of particles; the ranks of mpirun or srun share the\n"
    "problems.  Repeat the same command to continue an interrupted run.\n"
    "\n",
    "\n"
    "starmill help config particles lists the keys of CONFIG.yaml.\n",
    (const mill_option[]){
        {"output", MILL_OPTION_TEXT, AT(output), .help = "result file (HDF5)"},
        {"overwrite", MILL_OPTION_FLAG, AT(overwrite),
         .help = "replace an old output that the command cannot continue"},
        {"backend", MILL_OPTION_CHOICE, AT(backend), .words = mill_backend_words,
         .help = "device that moves particles (default cpu); auto: GPUs if every rank gets one, "
                 "else the CPU"},
        {"threads", MILL_OPTION_COUNT, AT(n_thread), .min = 0, .max = 4096,
         .help = "threads per rank; 0: all cores available to it"},
        {"quiet", MILL_OPTION_FLAG, AT(quiet), .help = "print no summary"},
        MILL_OPTION_HELP(particle_options),
        {0}}};

const mill_option_help mill_particles_help = {&table, NULL};

static int parse(int argc, char **argv, particle_options *o)
{
  int first = 0;
  const char *text[MILL_OPTION_MAX];
  o->backend = MILL_WORD_CPU;
  MILL_CHECK(mill_option_parse(&table, argc, argv, o, text, &first));
  if (o->help)
    return MILL_OK;
  MILL_CHECK(mill_thread_check_number(o->n_thread));
  if (argc - first != 1)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "%d configurations: give one CONFIG.yaml; see starmill particles --help",
                      argc - first);
  o->config = argv[first];
  if (!o->output)
    return MILL_ERROR(MILL_ERR_USAGE,
                      "no output: give --output OUT.h5; see starmill particles --help");
  return MILL_OK;
}

/* Name all files, then read the potential and the samples; the job owns both. */
static int load_files(particle_job *job)
{
  mill_particle_config *c = &job->config;
  mill_file_roles roles = {0};
  MILL_CHECK(mill_file_roles_write(&roles, "--output", job->options.output));
  MILL_CHECK(mill_file_roles_read(&roles, "the configuration", job->options.config));
  MILL_CHECK(mill_file_roles_read(&roles, "potential_file", c->potential_file));
  MILL_CHECK(mill_file_roles_read(&roles, "samples_file", c->samples_file));
  if (c->potential_file[0])
    MILL_CHECK(mill_particle_read_field(c->potential_file, &c->setup));
  if (c->samples_file[0])
    MILL_CHECK(mill_particle_read_samples(c->samples_file, &c->setup, &job->sample));
  c->setup.sample = job->sample;
  return MILL_OK;
}

/* Read the configuration and its files, and check every problem. */
static int load(void *context)
{
  particle_job *job = context;
  mill_particle_config *c = &job->config;
  MILL_CHECK(mill_particle_config_read(job->options.config, c));
  MILL_CHECK(load_files(job));
  for (int64_t i = 0; i < c->n_problem; i++) {
    const mill_particle_problem *p = &c->problem[i];
    if ((p->potential == MILL_GRIDDED && !c->setup.field.coef) ||
        (p->start == MILL_START_SAMPLES && !job->sample))
      return MILL_ERROR(MILL_ERR_CONFIG,
                        "%s: problem %lld needs a file: give potential_file for `potential: grid`, "
                        "samples_file for `start: samples`",
                        job->options.config, (long long)i);
    if (mill_particle_check_problem(&c->setup, p) != MILL_OK)
      return MILL_ERROR(MILL_ERR_CONFIG, "%s: %s", job->options.config, mill_error_message());
  }
  return MILL_OK;
}

/* Print a line with the SHA-256 of data, named `what`. */
static int append_digest(FILE *out, const char *what, const void *data, size_t n_byte)
{
  mill_sha256 sha;
  char hex[65];
  mill_sha256_init(&sha);
  mill_sha256_update(&sha, data, n_byte);
  mill_sha256_final(&sha, hex);
  if (!hex[0])
    return MILL_ERROR(MILL_ERR_MEMORY, "no memory for a digest of %s", what);
  fprintf(out, "# %s: SHA-256 %s\n", what, hex);
  return MILL_OK;
}

/* Set *text to the configuration and digests of its potential and samples.  The caller frees it. */
static int make_identity(const particle_job *job, char **text)
{
  int err = MILL_OK;
  size_t n_text = 0;
  MILL_AT_END(mill_stream_close) FILE *in = NULL;
  FILE *out = open_memstream(text, &n_text);
  const mill_particle_setup *s = &job->config.setup;
  char buffer[4096];
  if (!out)
    MILL_FAIL(MILL_ERR_MEMORY, "no memory for the configuration");
  MILL_TRY(mill_regular_stream(job->options.config, "a configuration file", MILL_ERR_CONFIG, &in));
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, in)) > 0;)
    fwrite(buffer, 1, n, out);
  fputc('\n', out);
  if (s->field.coef) {
    MILL_TRY(append_digest(out, "potential", s->field.coef,
                           mill_particle_n_coef(&s->field) * sizeof *s->field.coef));
    /* the members before `time` have no padding between them */
    MILL_TRY(append_digest(out, "grid", &s->field, offsetof(mill_particle_field, time)));
    if (s->field.time)
      MILL_TRY(append_digest(out, "times", s->field.time,
                             (size_t)s->field.n_time * sizeof *s->field.time));
  }
  if (s->sample)
    MILL_TRY(append_digest(out, "samples", s->sample,
                           (size_t)s->n_particle * (size_t)s->n_dim * sizeof *s->sample));
done:
  return mill_text_close(out, err, "the configuration");
}

static int open_output(particle_job *job)
{
  int code = MILL_OK;
  MILL_OWNED char *identity = NULL;
  MILL_CHECK(mill_mpi_agree(&job->mpi, make_identity(job, &identity)));
  MILL_CHECK(mill_same_on_ranks(&job->mpi, "configurations", identity));
  if (job->mpi.rank == 0)
    code = mill_particle_file_open(job->options.output, job->options.overwrite, identity,
                                   &job->config, job->status, &job->file);
  return mill_mpi_agree(&job->mpi, code);
}

/* List the problems to do, and allocate memory for the results of the largest round. */
static int plan(particle_job *job)
{
  mill_particle_config *c = &job->config;
  const mill_particle_setup *s = &c->setup;
  job->n_density = (size_t)s->n_record;
  for (int a = 0; a < s->n_dim; a++)
    job->n_density *= (size_t)s->n_grid[a];
  job->n_bound = (size_t)s->n_record;
  job->n_moment = (size_t)(s->n_step + 1) * MILL_PARTICLE_MOMENTS;
  job->n_position = c->positions ? (size_t)s->n_particle * (size_t)s->n_dim : 0;
  const size_t n_bad_step = 1;
  job->n_result = job->n_density + job->n_bound + job->n_moment + job->n_position + n_bad_step;
  if (job->n_result > INT_MAX)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "the results of a problem have %zu numbers, more than %d: give fewer output "
                      "times or grid points, or set `positions: false`",
                      job->n_result, INT_MAX);
  MILL_CHECK(MILL_ALLOC(c->n_problem, &job->todo));
  for (int64_t i = 0; i < c->n_problem; i++)
    if (job->status[i] == MILL_PARTICLES_WAIT)
      job->todo[job->n_todo++] = i;
  const size_t n_rank = (size_t)job->mpi.size;
  const int64_t share = (job->n_todo + job->mpi.size - 1) / job->mpi.size;
  const size_t n_fit = ROUND_BYTES / (n_rank * job->n_result * sizeof(double)); /* in memory */
  job->n_most = (int)fmax(fmin(fmin((double)n_fit, (double)share), MOST_IN_ROUND), 1);
  return MILL_ALLOC((job->mpi.rank == 0 ? n_rank : 1) * (size_t)job->n_most * job->n_result,
                    &job->result);
}

static int find_gpu(const mill_mpi *mpi, const mill_particle_ops **ops)
{
  int err = mill_backend_place(mpi, 0);
  if (err == MILL_OK) {
    *ops = mill_particle_ops_cuda(&err);
    err = mill_mpi_agree(mpi, err);
  }
  if (err != MILL_OK)
    mill_gpu_release();
  return err;
}

/* Choose the engine: all ranks use the CPU, or each rank uses a GPU.  With auto, use GPUs if every
 * rank gets one; else use the CPU and log the reason. */
static int find_engine(particle_job *job)
{
  const int backend = job->options.backend;
  if (backend != MILL_WORD_CPU) {
    const int err = find_gpu(&job->mpi, &job->ops);
    job->is_gpu = err == MILL_OK;
    if (err == MILL_OK || err == MILL_ERR_MPI || backend == MILL_WORD_CUDA)
      return err;
    if (job->mpi.rank == 0)
      mill_log_info("backend auto: the CPU, since %s", mill_error_message());
  }
  job->ops = mill_particle_ops_cpu(NULL);
  const int code = job->ops
                       ? MILL_OK
                       : MILL_ERROR(MILL_ERR_BACKEND, "this processor is too old for particles: "
                                                      "x86-64-v2 or later is needed");
  return mill_mpi_agree(&job->mpi, code);
}

/* Read the configuration, choose the engine, open the output, and list the problems to do. */
static int set_up(particle_job *job)
{
  MILL_CHECK(mill_mpi_agree(&job->mpi, mill_stop_signal_catch()));
  MILL_CHECK(mill_mpi_rank0_first(&job->mpi, load, job));
  MILL_CHECK(find_engine(job));
  MILL_CHECK(mill_mpi_agree(&job->mpi, MILL_ALLOC(job->config.n_problem, &job->status)));
  MILL_CHECK(open_output(job));
  MILL_CHECK_MPI(
      MPI_Bcast(job->status, (int)job->config.n_problem, MPI_UNSIGNED_CHAR, 0, job->mpi.comm));
  MILL_CHECK(mill_mpi_agree(&job->mpi, plan(job)));
  job->config.setup.n_thread = job->options.n_thread;
  if (job->options.n_thread == 0)
    MILL_CHECK(mill_mpi_share_of_cores(&job->mpi, &job->config.setup.n_thread));
  return MILL_OK;
}

/* Return pointers to the parts of a problem's results stored at `at`. */
static mill_particle_result result_at(const particle_job *job, double *at)
{
  mill_particle_result r = {.density = at};
  r.bound = r.density + job->n_density;
  r.moment = r.bound + job->n_bound;
  r.position = job->n_position ? r.moment + job->n_moment : NULL;
  return r;
}

/* Evolve n problems of the list todo, from index `first` on. */
static int compute(particle_job *job, int64_t first, int n)
{
  MILL_OWNED mill_particle_problem *problem = NULL;
  MILL_OWNED mill_particle_result *result = NULL;
  MILL_CHECK(MILL_ALLOC(n, &problem));
  MILL_CHECK(MILL_ALLOC(n, &result));
  for (int i = 0; i < n; i++) {
    problem[i] = job->config.problem[job->todo[first + i]];
    result[i] = result_at(job, job->result + (size_t)i * job->n_result);
  }
  MILL_CHECK(job->ops->evolve(&job->config.setup, n, problem, result));
  for (int i = 0; i < n; i++) /* the last number of a problem's results */
    job->result[(size_t)(i + 1) * job->n_result - 1] = result[i].bad_step;
  return MILL_OK;
}

/* Rank 0: write the results of all ranks in the round that begins at todo[first]. */
static int keep(particle_job *job, int64_t first)
{
  for (int64_t i = 0; i < (int64_t)job->mpi.size * job->n_round && first + i < job->n_todo; i++) {
    const int64_t i_problem = job->todo[first + i];
    double *at = job->result + (size_t)i * job->n_result;
    mill_particle_result r = result_at(job, at);
    r.bad_step = (int)at[job->n_result - 1];
    job->status[i_problem] = r.bad_step < 0 ? MILL_PARTICLES_DONE : MILL_PARTICLES_BAD_STEP;
    MILL_CHECK(mill_particle_file_write(job->file, i_problem, &r));
  }
  return mill_particle_file_mark(job->file, job->status);
}

/* Work in rounds: each rank evolves job->n_round problems, then rank 0 gathers and writes all
 * results.  n_round is chosen so that a round takes ROUND_S, judged by the round before.
 * n_round also keeps all threads busy, if enough problems are left. */
static int rounds(particle_job *job)
{
  const int rank = job->mpi.rank, n_thread = job->is_gpu ? GPU_THREADS : job->config.setup.n_thread;
  const double least = 1 + THREAD_PARTICLES * n_thread / job->config.setup.n_particle;
  double wanted = 0;
  for (int64_t first = 0; first < job->n_todo;) {
    const double start_s = mill_wall_s();
    const double share = ceil((double)(job->n_todo - first) / job->mpi.size);
    job->n_round = (int)fmin(fmin(fmax(wanted, least), share), job->n_most);
    MILL_CHECK_MPI(MPI_Bcast(&job->n_round, 1, MPI_INT, 0, job->mpi.comm));
    const int64_t mine = first + (int64_t)rank * job->n_round;
    const int n = (int)fmax(0, fmin(job->n_round, (double)(job->n_todo - mine)));
    const int n_number = job->n_round * (int)job->n_result;
    MILL_CHECK(mill_mpi_agree(&job->mpi, n > 0 ? compute(job, mine, n) : MILL_OK));
    MILL_CHECK_MPI(MPI_Gather(rank == 0 ? MPI_IN_PLACE : job->result, n_number, MPI_DOUBLE,
                              job->result, n_number, MPI_DOUBLE, 0, job->mpi.comm));
    int code = rank == 0 ? keep(job, first) : MILL_OK;
    first += (int64_t)job->mpi.size * job->n_round;
    if (code == MILL_OK && mill_stop_reason() != MILL_STOP_NONE && first < job->n_todo)
      code = MILL_ERROR(MILL_ERR_STOPPED, "stopped; the same command continues");
    MILL_CHECK(mill_mpi_agree(&job->mpi, code));
    wanted = job->n_round * ROUND_S / fmax(mill_wall_s() - start_s, 1e-3);
  }
  return MILL_OK;
}

static void print_summary(const particle_job *job, double wall_s)
{
  const mill_particle_setup *s = &job->config.setup;
  printf("problems     %lld", (long long)job->config.n_problem);
  if (job->n_todo < job->config.n_problem)
    printf(", %lld of them already done", (long long)(job->config.n_problem - job->n_todo));
  printf("\nparticles    %d, %d steps, %d densities\n", s->n_particle, s->n_step, s->n_record);
  printf("time         %.2f s, %.3g particle steps/s (%d ranks, %d threads each, %s%s)\n", wall_s,
         wall_s > 0 ? (double)job->n_todo * s->n_particle * s->n_step / wall_s : 0.0, job->mpi.size,
         s->n_thread, job->is_gpu ? "" : "cpu ", job->ops->name);
  printf("densities    %s\n", job->options.output);
  fflush(stdout);
}

/* On rank 0 warn of problems that lost particles because the step is too long; fail if all did. */
static int tell_bad(const particle_job *job)
{
  const mill_particle_config *c = &job->config;
  int64_t n_bad = 0, first = 0;
  for (int64_t i = 0; job->mpi.rank == 0 && i < c->n_problem; i++)
    if (job->status[i] == MILL_PARTICLES_BAD_STEP && n_bad++ == 0)
      first = i;
  const unsigned long long id = c->problem[first].id;
  if (n_bad == c->n_problem)
    return MILL_ERROR(MILL_ERR_CONFIG,
                      "a step of %g is too large for the drift or the diffusion: all problems lost "
                      "particles, for example problem %llu; give a shorter step",
                      c->setup.step, id);
  if (n_bad > 0)
    fprintf(stderr,
            "starmill particles: a step of %g is too large for %lld of %lld problems, which have "
            "STATUS %d, for example problem %llu; give a shorter step\n",
            c->setup.step, (long long)n_bad, (long long)c->n_problem, MILL_PARTICLES_BAD_STEP, id);
  return MILL_OK;
}

static int evolve(particle_job *job, int argc, char **argv)
{
  MILL_CHECK(mill_mpi_agree(&job->mpi, parse(argc, argv, &job->options)));
  if (mill_option_helped(job->options.help, job->mpi.rank, &table, NULL))
    return MILL_OK;
  MILL_CHECK(set_up(job));
  const double start_s = mill_wall_s();
  const int code = mill_particle_file_close(job->file, rounds(job));
  job->file = NULL;
  MILL_CHECK(mill_mpi_agree(&job->mpi, code));
  if (job->mpi.rank == 0 && !job->options.quiet)
    print_summary(job, mill_wall_s() - start_s);
  return mill_mpi_agree(&job->mpi, tell_bad(job));
}

static int run(const mill_mpi *mpi, int argc, char **argv)
{
  MILL_OWNED particle_job *job = NULL;
  MILL_CHECK(mill_mpi_agree(mpi, MILL_ALLOC(1, &job)));
  job->mpi = *mpi;
  const int code = evolve(job, argc, argv);
  (void)mill_particle_file_close(job->file, code);
  mill_particle_free_field(&job->config.setup.field);
  mill_particle_config_clear(&job->config);
  MILL_FREE(job->sample, job->status, job->todo, job->result);
  return code;
}

int mill_job_particles(int argc, char **argv)
{
  return mill_mpi_job("starmill particles", run, argc, argv);
}
