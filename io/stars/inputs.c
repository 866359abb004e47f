/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* qsort_r */

#include "io/stars/inputs.h"

#include <string.h>
#include <sys/stat.h>

#include "io/hdf5/output_file.h"
#include "io/result/result_inputs.h"
#include "io/surveys/redrock.h"
#include "src/system/status_process.h"
#include "src/system/log.h"
#include "src/system/regular_file.h"
#include "src/system/stop_signal.h"
#include "src/system/watchdog.h"

#define LEFT_OUT "%s could not be read when the result was begun: give it an --output of its own"
enum { MAX_ERROR = 256, CUT_BYTES = 1 << 20 };

/* Facts about a file; ranks exchange this struct as bytes. */
typedef struct file_facts {
  mill_input_file file; /* its texts and row_start are not set */
  int64_t n_exposure;
  uint64_t device, inode;
  int32_t on_disk;   /* 1: device and inode are known */
  int32_t n_error;   /* bytes of its error text, with the final zero; 0: none */
  int32_t n_redrock; /* bytes of its redrock file's path, with the final zero; 0: none */
  int32_t left_out;  /* 1: it could not be read when the result was begun */
} file_facts;

/* Wavelengths of an arm in this rank's files; the models file needs them. */
typedef struct arm_layout {
  int first_file;         /* first file with this arm; INT_MAX: none */
  int n_pix, n_pix_first; /* pixels of the longest and of the first exposure */
  double *wave_aa;        /* [n_pix_first] of the first exposure, owned */
  int differs;            /* 1: an exposure has other wavelengths or several spectra of the arm */
} arm_layout;

/* State of indexing. */
typedef struct index_job {
  mill_spectra_settings settings;
  int want_models;
  mill_inputs *inputs;
  int64_t n_held; /* bytes of rows kept so far */
  int keeps_all;  /* 1: keep all rows, since rows are joined */
  char *text;     /* [n_text] error texts and redrock paths of this rank's files, owned */
  size_t n_text;
  int64_t n_text_room;
  mill_read_batch batch;
  arm_layout layout[MILL_MAX_ARM];
} index_job;

/* Are wavelengths equal within 0.001 pixels?  Smaller differences come from rounding of inputs. */
static int same_wavelengths(int n_a, const double *a, int n_b, const double *b)
{
  if (n_a != n_b)
    return 0;
  const double tolerance_aa = 1e-3 * (a[n_a - 1] - a[0]) / n_a;
  for (int i = 0; i < n_a; i++)
    if (fabs(a[i] - b[i]) > tolerance_aa)
      return 0;
  return 1;
}

/* Keep the wavelengths of each arm's first exposure; note if an exposure of the batch differs. */
static int learn_batch(index_job *job, int i_file)
{
  const mill_read_batch *batch = &job->batch;
  const double *last_wave[MILL_MAX_ARM] = {NULL}; /* of the last exposure, often the same array */
  for (int i = 0, end; i < batch->n_segment; i = end) { /* [i, end): one exposure and arm */
    const mill_raw_segment *s = &batch->segment[i];
    int n_pix = 0;
    for (end = i; end < batch->n_segment && batch->segment[end].exposure == s->exposure &&
                  batch->segment[end].arm == s->arm;
         end++)
      n_pix += batch->segment[end].n_pix;
    if (s->arm < 0)
      continue;
    arm_layout *layout = &job->layout[s->arm];
    layout->n_pix = n_pix > layout->n_pix ? n_pix : layout->n_pix;
    if (layout->first_file == INT_MAX) {
      MILL_CHECK(MILL_ALLOC(s->n_pix, &layout->wave_aa));
      memcpy(layout->wave_aa, s->wave_aa, (size_t)s->n_pix * sizeof *s->wave_aa);
      layout->n_pix_first = s->n_pix;
      layout->first_file = i_file;
      last_wave[s->arm] = s->wave_aa;
    }
    if (end > i + 1 || /* in pieces */
        (s->wave_aa != last_wave[s->arm] &&
         !same_wavelengths(layout->n_pix_first, layout->wave_aa, s->n_pix, s->wave_aa)))
      layout->differs = 1;
    last_wave[s->arm] = s->wave_aa;
  }
  return MILL_OK;
}

/* Learn the wavelengths of a file's selected exposures; the fit will report unreadable ones. */
static int learn_layout(index_job *job, mill_spectra *spectra, const mill_file_index *index,
                        int i_file)
{
  enum { GROUP = 64 }; /* exposures read together; if any fails, one by one */
  for (int64_t at = 0; at < index->n_exposure; at += GROUP) {
    const int64_t *exposure = index->exposure_row + at;
    const int n = (int)(index->n_exposure - at < GROUP ? index->n_exposure - at : GROUP);
    const int code = mill_spectra_waves(spectra, exposure, n, &job->batch);
    if (code == MILL_OK)
      MILL_CHECK(learn_batch(job, i_file));
    else if (code != MILL_ERR_INPUT)
      return code;
    for (int i = 0; i < n && code == MILL_ERR_INPUT; i++) {
      const int code_of_one = mill_spectra_waves(spectra, exposure + i, 1, &job->batch);
      if (code_of_one == MILL_OK)
        MILL_CHECK(learn_batch(job, i_file));
      else if (code_of_one != MILL_ERR_INPUT)
        return code_of_one;
    }
  }
  return MILL_OK;
}

/* Relative cost of indexing a file: a .gz must be unpacked completely. */
static double cost_of_file(const char *name, const file_facts *facts)
{
  return 1.0 + (mill_is_gz(name) ? fmax(0.0, (double)facts->file.size) / CUT_BYTES : 0.0);
}

/* Append a text, cut to most - 1 bytes, to job->text; *n_byte: its length with the final zero. */
static int add_text(index_job *job, const char *text, size_t most, int32_t *n_byte)
{
  const size_t length = strnlen(text, most - 1);
  MILL_CHECK(MILL_GROW(&job->text, &job->n_text_room, (int64_t)(job->n_text + length + 1)));
  memcpy(job->text + job->n_text, text, length);
  job->text[job->n_text + length] = '\0';
  job->n_text += length + 1;
  *n_byte = (int32_t)(length + 1);
  return MILL_OK;
}

/* Above MILL_INDEX_BYTES per rank, keep only a file's counts and not its rows, unless keeps_all. */
static void hold_rows(index_job *job, mill_file_index *index)
{
  const int64_t n_byte =
      index->n_row * (int64_t)sizeof *index->row +
      index->n_exposure * (int64_t)(sizeof *index->exposure_row + sizeof *index->exposure_mjd +
                                    sizeof *index->exposure_id);
  if (job->keeps_all || job->n_held + n_byte <= MILL_INDEX_BYTES) {
    job->n_held += n_byte;
    return;
  }
  const mill_file_index counts = {.n_row = index->n_row,
                                  .n_exposure = index->n_exposure,
                                  .n_fits_row = index->n_fits_row,
                                  .file_size = index->file_size,
                                  .file_mtime = index->file_mtime,
                                  .rows_hash = index->rows_hash};
  mill_file_index_clear(index);
  *index = counts;
}

/* Index a file and set its facts; of an unreadable file, keep the error message. */
static int index_file(index_job *job, const char *path, int i_file, file_facts *facts)
{
  mill_file_index *index = &job->inputs->index[i_file - job->inputs->file_start];
  MILL_AT_END(mill_spectra_close_at) mill_spectra *spectra = NULL;
  int code = facts->left_out ? MILL_ERROR(MILL_ERR_INPUT, LEFT_OUT, path)
                             : mill_spectra_open(path, &job->settings, &spectra);
  if (code == MILL_OK)
    code = mill_spectra_index(spectra, &job->settings.config->select, index);
  if (code == MILL_ERR_INPUT || code == MILL_ERR_RANGE) {
    mill_log_error("%s", mill_error_message());
    if (job->settings.config->join_by_name)
      mill_log_warning("%s is left out: stars of other files are fitted without its spectra", path);
    mill_file_index_clear(index);
    return add_text(job, mill_error_message(), MAX_ERROR, &facts->n_error);
  }
  MILL_CHECK(code);
  if (index->warning)
    mill_log_warning("%s: %s", path, index->warning);
  facts->file.size = index->file_size;
  facts->file.mtime = index->file_mtime;
  facts->file.n_row = index->n_row;
  facts->file.rows_hash = index->rows_hash;
  facts->file.named_by_file = index->named_by_file;
  facts->file.redrock_size = index->redrock_size;
  facts->file.redrock_mtime = index->redrock_mtime;
  if (index->redrock)
    MILL_CHECK(add_text(job, index->redrock, MILL_FITS_MAX_PATH, &facts->n_redrock));
  snprintf(facts->file.format, sizeof facts->file.format, "%s", mill_spectra_format_name(spectra));
  snprintf(facts->file.frame, sizeof facts->file.frame, "%s",
           mill_frame_name(mill_spectra_frame(spectra)));
  facts->n_exposure = index->n_exposure;
  mill_log_debug("%s (%s): %lld of %lld rows selected", path, facts->file.format,
                 (long long)index->n_row, (long long)index->n_fits_row);
  if (job->want_models && index->n_row > 0)
    MILL_CHECK(learn_layout(job, spectra, index, i_file));
  hold_rows(job, index);
  return MILL_OK;
}

/* Index this rank's share of the files, until the job shall stop. */
static int index_share(index_job *job, const mill_input_names *names, file_facts *facts)
{
  const mill_inputs *inputs = job->inputs;
  MILL_CHECK(MILL_ALLOC(inputs->file_end - inputs->file_start, &job->inputs->index));
  for (int i = inputs->file_start; i < inputs->file_end; i++) {
    if (mill_stop_reason() != MILL_STOP_NONE)
      return MILL_ERROR(MILL_ERR_STOPPED,
                        "stopped while indexing: nothing was fitted; give the same command again");
    MILL_WATCHED(MILL_WATCH_FILE, 0, "%s: indexing it", names->name[i]);
    MILL_CHECK(index_file(job, names->name[i], i, &facts[i]));
  }
  return MILL_OK;
}

/* Note size, time, device and inode of a file; size -1: the file is missing. */
static void look_at_file(const char *path, file_facts *facts)
{
  struct stat status;
  facts->file.size = -1;
  if (stat(path, &status) != 0)
    return;
  facts->on_disk = 1;
  facts->device = (uint64_t)status.st_dev;
  facts->inode = (uint64_t)status.st_ino;
  facts->file.size = (int64_t)status.st_size;
  facts->file.mtime = (double)status.st_mtim.tv_sec + 1e-9 * (double)status.st_mtim.tv_nsec;
}

/* Give every rank the facts of all files; start [size + 1]: first file of each rank. */
static int gather_facts(const mill_mpi *mpi, const int *start, file_facts **facts)
{
  file_facts *all = NULL;
  const int first = start[mpi->rank], n = start[mpi->rank + 1] - first;
  int64_t n_all = 0;
  MILL_CHECK(mill_mpi_gather(mpi, *facts + first, n, sizeof **facts,
                             "inputs are too many; make several runs", (void **)&all, &n_all));
  mill_free(*facts);
  *facts = all;
  return MILL_OK;
}

/* Rank 0 marks the inputs that could not be read when the run began the result file `begun`.  A
 * continued run leaves them out, too. */
static void leave_out(const char *begun, const mill_input_names *names, file_facts *facts)
{
  MILL_AT_END(mill_h5_id_close) hid_t file = H5I_INVALID_HID;
  MILL_AT_END(mill_recorded_inputs_clear) mill_recorded_inputs was = {0};
  if (!begun || mill_output_open_existing(begun, &file) != MILL_OK || file < 0 ||
      mill_recorded_inputs_read(file, begun, &was) != MILL_OK || was.n_file != names->n)
    return; /* a bad result is refused later */
  for (int i = 0; i < was.n_file; i++)
    if (was.file[i].error[0] && mill_recorded_is(was.folder, was.file[i].path, names->name[i])) {
      facts[i].left_out = 1;
      facts[i].file = was.file[i]; /* its texts are set later */
    }
}

/* Divide files among ranks by cost of indexing; start [size + 1]: first file of each rank. */
static int cut_files(const mill_mpi *mpi, const mill_input_names *names, const char *begun,
                     file_facts **facts, int *start)
{
  double all = 0, so_far = 0; /* cost of all files; of the files before file i */
  int rank = 1;
  for (int r = 0; r <= mpi->size; r++) /* equal numbers, until the sizes are known */
    start[r] = (int)(names->n * r / mpi->size);
  for (int i = start[mpi->rank]; i < start[mpi->rank + 1]; i++) {
    MILL_WATCHED(MILL_WATCH_START, 0, "%s: looking at the file", names->name[i]);
    look_at_file(names->name[i], *facts + i);
  }
  MILL_CHECK(gather_facts(mpi, start, facts));
  for (int r = 1; r <= mpi->size; r++) /* rank 0 changes and sends the facts of all files */
    start[r] = (int)names->n;
  leave_out(begun, names, *facts); /* begun: the result to continue, or NULL */
  MILL_CHECK(gather_facts(mpi, start, facts));
  for (int64_t i = 0; i < names->n; i++)
    all += cost_of_file(names->name[i], *facts + i);
  for (int64_t i = 0; i < names->n; i++) {
    /* a file goes to the rank whose share of the cost contains its middle */
    const double cost = cost_of_file(names->name[i], *facts + i);
    for (; rank < mpi->size && so_far + 0.5 * cost > all * rank / mpi->size; rank++)
      start[rank] = (int)i;
    so_far += cost;
  }
  return MILL_OK;
}

/* Context of compare_identity. */
typedef struct identities {
  const file_facts *facts;
  const char *const *name;
} identities;

/* Compare two inputs; return 0 for the same file on disk, or for missing files of the same name.
 * Files of different hosts may agree in device and inode by chance, but hardly in size and time. */
static int compare_identity(const void *a, const void *b, void *context)
{
  const identities *all = context;
  const file_facts *x = &all->facts[*(const int *)a], *y = &all->facts[*(const int *)b];
  if (x->device != y->device)
    return x->device < y->device ? -1 : 1;
  if (x->inode != y->inode)
    return x->inode < y->inode ? -1 : 1;
  if (x->file.size != y->file.size)
    return x->file.size < y->file.size ? -1 : 1;
  if (x->file.mtime != y->file.mtime)
    return x->file.mtime < y->file.mtime ? -1 : 1;
  return x->on_disk ? 0 : strcmp(all->name[*(const int *)a], all->name[*(const int *)b]);
}

/* Fail if two inputs are the same file: its stars would be fitted twice. */
static int refuse_duplicates(const mill_input_names *names, const file_facts *facts)
{
  MILL_OWNED int *order = NULL;
  identities all = {facts, names->name};
  const int n_file = (int)names->n;
  MILL_CHECK(MILL_ALLOC(n_file, &order));
  for (int i = 0; i < n_file; i++)
    order[i] = i;
  qsort_r(order, (size_t)n_file, sizeof *order, compare_identity, &all);
  for (int i = 1; i < n_file; i++)
    if (compare_identity(&order[i - 1], &order[i], &all) == 0)
      return MILL_ERROR(
          MILL_ERR_USAGE, "inputs %d (%s) and %d (%s) are the same file: name it once",
          order[i - 1] + 1, names->name[order[i - 1]], order[i] + 1, names->name[order[i]]);
  return MILL_OK;
}

/* Fail if the run would overwrite an input or its redrock file. */
static int refuse_written_inputs(const mill_input_names *names, const file_facts *facts,
                                 const mill_file_roles *roles)
{
  int may_be_redrock = 0;
  char beside[MILL_FITS_MAX_PATH];
  for (int i = 0; i < roles->n; i++)
    may_be_redrock |= mill_redrock_is_name(roles->written[i].identity.name);
  for (int64_t i = 0; i < names->n; i++) {
    const char *name = names->name[i];
    MILL_CHECK(mill_file_roles_read_known(roles, "the input", name, facts[i].on_disk,
                                          facts[i].device, facts[i].inode));
    if (!may_be_redrock || mill_redrock_beside(name, beside, sizeof beside) != MILL_OK)
      continue; /* indexing reports a path that is too long */
    MILL_CHECK(mill_file_roles_read(roles, "the redrock file", beside));
  }
  return MILL_OK;
}

/* Barycentric and heliocentric velocities differ by up to 16 m/s, below the spectra's precision. */
static int is_solar(const char *frame)
{
  return strcmp(frame, mill_frame_name(MILL_FRAME_BARYCENTRIC)) == 0 ||
         strcmp(frame, mill_frame_name(MILL_FRAME_HELIOCENTRIC)) == 0;
}

/* Fail if a joined row mixes velocity frames, which differ by up to 30 km/s. */
static int refuse_mixed_frames(const mill_input_names *names, const file_facts *facts,
                               const mill_inputs *inputs)
{
  const mill_join *join = inputs->join;
  const int64_t end = join->row_start[inputs->file_end];
  for (int64_t row = join->row_start[inputs->file_start]; row < end; row++)
    for (int64_t k = join->start[row].part + 1; k < join->start[row + 1].part; k++) {
      const int i_first = join->part[join->start[row].part].file, i_other = join->part[k].file;
      const file_facts *first = &facts[i_first], *other = &facts[i_other];
      if (strcmp(first->file.frame, other->file.frame) != 0 &&
          !(is_solar(first->file.frame) && is_solar(other->file.frame)))
        return MILL_ERROR(
            MILL_ERR_CONFIG,
            "join_by_name: %s (frame %s) and %s (frame %s) have spectra of one object in different "
            "velocity frames: fit these files one by one, or convert them to one frame",
            names->name[i_first], first->file.frame, names->name[i_other], other->file.frame);
    }
  return MILL_OK;
}

/* Join each object's rows over all files.  Set each file's numbers of joined rows and exposures. */
static int join_rows(const mill_mpi *mpi, const mill_config *config, const mill_input_names *names,
                     file_facts *facts, mill_inputs *inputs)
{
  MILL_OWNED int64_t *n_row = NULL, *n_exposure = NULL;
  MILL_CHECK(mill_mpi_agree(mpi, mill_error_of(MILL_ALLOC(inputs->n_file, &n_row),
                                               MILL_ALLOC(inputs->n_file, &n_exposure))));
  MILL_CHECK(mill_join_make(mpi, config->join_radius_arcsec, config->select.star, &inputs->tables,
                            names->name, inputs->n_file, inputs->file_start, inputs->file_end,
                            inputs->index, n_row, n_exposure, &inputs->join));
  MILL_CHECK(mill_mpi_agree(mpi, refuse_mixed_frames(names, facts, inputs)));
  for (int i = 0; i < inputs->n_file; i++) {
    facts[i].file.n_row = n_row[i];
    facts[i].n_exposure = n_exposure[i];
  }
  const int64_t n_after = inputs->join->row_start[inputs->n_file];
  if (mpi->rank == 0)
    mill_log_info("join_by_name: %lld rows of the input files make up %lld objects",
                  (long long)inputs->join->start[n_after].part, (long long)n_after);
  return MILL_OK;
}

/* Refuse duplicate inputs and inputs that are also outputs; then make the table of all files. */
static int build_table(const mill_input_names *names, const file_facts *facts,
                       const mill_file_roles *roles, mill_inputs *inputs)
{
  int64_t n_exposure = 0;
  const char *text = inputs->file_text; /* of each file: error, then path of its redrock file */
  MILL_CHECK(refuse_duplicates(names, facts));
  if (roles)
    MILL_CHECK(refuse_written_inputs(names, facts, roles));
  MILL_CHECK(MILL_ALLOC(inputs->n_file, &inputs->file));
  MILL_CHECK(MILL_ALLOC(inputs->n_file, &inputs->exposure_start));
  MILL_CHECK(MILL_ALLOC(inputs->n_file, &inputs->n_exposure));
  for (int i = 0; i < inputs->n_file; i++) {
    const file_facts *from = &facts[i];
    mill_input_file *file = &inputs->file[i];
    *file = from->file;
    file->path = names->name[i];
    file->row_start = inputs->n_row;
    file->error = from->n_error > 0 ? text : "";
    file->redrock = from->n_redrock > 0 ? text + from->n_error : "";
    text += from->n_error + from->n_redrock;
    inputs->exposure_start[i] = n_exposure;
    inputs->n_exposure[i] = from->n_exposure;
    inputs->n_row += file->n_row;
    n_exposure += from->n_exposure;
    inputs->n_unreadable += from->n_error > 0;
  }
  return MILL_OK;
}

/* Give all ranks the wavelengths of each arm, or NULL if exposures of the arm differ in these. */
static int share_layout(const mill_mpi *mpi, const mill_library *lib, const arm_layout *layouts,
                        mill_inputs *inputs)
{
  for (int a = 0; a < lib->n_arm; a++) {
    const arm_layout *mine = &layouts[a];
    struct {
      int file, rank;
    } here = {mine->first_file, mpi->rank}, first; /* first: the rank with the arm's first file */
    int n_first = mine->n_pix_first, n_longest = mine->n_pix, differs = mine->differs;
    MILL_CHECK_MPI(MPI_Allreduce(&here, &first, 1, MPI_2INT, MPI_MINLOC, mpi->comm));
    if (first.file == INT_MAX)
      continue;
    MILL_CHECK_MPI(MPI_Bcast(&n_first, 1, MPI_INT, first.rank, mpi->comm));
    MILL_CHECK(mill_mpi_agree(mpi, MILL_ALLOC(n_first, &inputs->wave_aa[a])));
    if (mpi->rank == first.rank)
      memcpy(inputs->wave_aa[a], mine->wave_aa, (size_t)n_first * sizeof(double));
    MILL_CHECK_MPI(MPI_Bcast(inputs->wave_aa[a], n_first, MPI_DOUBLE, first.rank, mpi->comm));
    differs |= mine->first_file != INT_MAX &&
               !same_wavelengths(n_first, inputs->wave_aa[a], mine->n_pix_first, mine->wave_aa);
    MILL_CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &differs, 1, MPI_INT, MPI_MAX, mpi->comm));
    MILL_CHECK_MPI(MPI_Allreduce(&n_longest, &inputs->n_pix[a], 1, MPI_INT, MPI_MAX, mpi->comm));
    if (differs) {
      mill_free(inputs->wave_aa[a]);
      inputs->wave_aa[a] = NULL;
    }
  }
  return MILL_OK;
}

/* Log each combination of format and velocity frame once. */
static void log_frames(const mill_inputs *inputs)
{
  for (int i = 0; i < inputs->n_file; i++) {
    const mill_input_file *file = &inputs->file[i];
    int64_t n_same = 0;
    int first = -1; /* first file of this combination; -1: file i is unreadable, without a format */
    for (int j = 0; j < inputs->n_file && file->format[0] && (first < 0 || first == i); j++)
      if (strcmp(inputs->file[j].format, file->format) == 0 &&
          strcmp(inputs->file[j].frame, file->frame) == 0 && n_same++ == 0)
        first = j;
    if (first != i)
      continue; /* unreadable, or logged for an earlier file, at which the loop ended */
    mill_log_info("%lld input %s of format %s: the frame of the wavelengths, and so of the "
                  "velocities, is %s; nothing is corrected",
                  (long long)n_same, n_same == 1 ? "file" : "files", file->format, file->frame);
  }
}

int mill_inputs_index(const mill_mpi *mpi, const mill_input_request *request,
                      const mill_config *config, const mill_library *lib, const int *arm_wanted,
                      const mill_file_roles *roles, mill_inputs *inputs)
{
  int err = MILL_OK;
  mill_input_names names = {0};
  file_facts *facts = NULL;
  int *start = NULL;
  int64_t n_text = 0;
  index_job job = {.settings = {.lib = lib,
                                .config = config,
                                .limits = {config->gzip_limit_mib, config->scratch}},
                   .inputs = inputs,
                   .want_models = request->want_models,
                   .keeps_all = config->join_by_name};
  *inputs = (mill_inputs){.tables = inputs->tables, .begun = inputs->begun}; /* set by the caller */
  memcpy(job.settings.arm_wanted, arm_wanted, sizeof job.settings.arm_wanted);
  for (int a = 0; a < MILL_MAX_ARM; a++)
    job.layout[a].first_file = INT_MAX;
  MILL_TRY(mill_input_names_share(mpi, request, config, lib, &names));
  inputs->n_file = (int)names.n;
  inputs->n_skipped = (int)names.n_skipped;
  memcpy(inputs->settings_digest, names.settings, sizeof inputs->settings_digest);
  if (names.n == 0) /* all inputs are done */
    goto done;
  MILL_TRY(mill_mpi_agree(
      mpi, mill_error_of(MILL_ALLOC(names.n, &facts), MILL_ALLOC(mpi->size + 1, &start))));
  MILL_TRY(cut_files(mpi, &names, inputs->begun, &facts, start));
  inputs->file_start = start[mpi->rank];
  inputs->file_end = start[mpi->rank + 1];
  MILL_TRY(mill_mpi_agree(mpi, index_share(&job, &names, facts)));
  MILL_TRY(gather_facts(mpi, start, &facts));
  MILL_TRY(mill_mpi_gather(mpi, job.text, (int64_t)job.n_text, 1,
                           "bytes of redrock paths and warnings are too many: split the inputs",
                           (void **)&inputs->file_text, &n_text));
  if (config->join_by_name)
    MILL_TRY(join_rows(mpi, config, &names, facts, inputs));
  MILL_TRY(mill_mpi_agree(mpi, build_table(&names, facts, roles, inputs)));
  inputs->settings = job.settings;
  inputs->path_text = names.text;
  names.text = NULL;
  if (mpi->rank == 0)
    log_frames(inputs);
  if (job.want_models)
    MILL_TRY(share_layout(mpi, lib, job.layout, inputs));
done:
  mill_read_batch_clear(&job.batch);
  for (int a = 0; a < MILL_MAX_ARM; a++)
    mill_free(job.layout[a].wave_aa);
  MILL_FREE(job.text, start, facts);
  mill_input_names_clear(&names);
  return err;
}

int mill_inputs_open(const mill_inputs *inputs, int i_file, mill_spectra **spectra,
                     mill_file_index *index)
{
  int err = MILL_OK;
  const mill_input_file *file = &inputs->file[i_file];
  const int64_t n_row = inputs->join ? inputs->join->n_row_before[i_file] : file->n_row;
  *spectra = NULL;
  memset(index, 0, sizeof *index);
  MILL_TRY(mill_spectra_open(file->path, &inputs->settings, spectra));
  MILL_TRY(mill_spectra_index(*spectra, &inputs->settings.config->select, index));
  const int is_same = index->file_size == file->size && index->file_mtime == file->mtime;
  const int has_same_rows = index->n_row == n_row && index->rows_hash == file->rows_hash;
  const int has_same_redrock =
      index->redrock_size == file->redrock_size && index->redrock_mtime == file->redrock_mtime;
  if (!is_same || !has_same_rows || (file->redrock_size > 0 && !has_same_redrock)) {
    const int by_redrock = is_same && file->redrock_size > 0;
    char host[256];
    mill_host_name(host, sizeof host);
    MILL_FAIL(
        MILL_ERR_INPUT,
        "%s%s%s changed while the job was running, or its copy on host %s has another file "
        "time: bring the old file back, use --overwrite, or copy with times (cp -p, sbcast -p)",
        file->path, by_redrock ? ": its redrock file " : "", by_redrock ? file->redrock : "", host);
  }
  /* ignore a redrock file that appeared after indexing: earlier rows were done without it */
  for (int64_t i = 0; i < index->n_row && !has_same_redrock; i++)
    index->row[i].kind = (mill_kind){.z = NAN};
done:
  if (err != MILL_OK) {
    mill_spectra_close(*spectra);
    *spectra = NULL;
    mill_file_index_clear(index);
  }
  return err;
}

int mill_inputs_load(void *context, int i_file, mill_file_index *index)
{
  mill_spectra *spectra;
  const int err = mill_inputs_open(context, i_file, &spectra, index);
  mill_spectra_close(spectra);
  /* the result has rows for this file already, so this run cannot leave the file out */
  return err == MILL_ERR_INPUT || err == MILL_ERR_RANGE
             ? MILL_ERROR(MILL_ERR_STOPPED,
                          "%s; the file was readable before: give the same command again",
                          mill_error_message())
             : err;
}

void mill_inputs_drop_index(mill_inputs *inputs)
{
  if (inputs->index)
    for (int i = 0; i < inputs->file_end - inputs->file_start; i++)
      mill_file_index_clear(&inputs->index[i]);
  mill_free(inputs->index);
  inputs->index = NULL;
}

void mill_inputs_clear(mill_inputs *inputs)
{
  if (!inputs)
    return;
  mill_inputs_drop_index(inputs);
  mill_join_free(inputs->join);
  MILL_FREE(inputs->file, inputs->exposure_start, inputs->n_exposure, inputs->path_text,
            inputs->file_text);
  for (int a = 0; a < MILL_MAX_ARM; a++)
    mill_free(inputs->wave_aa[a]);
  memset(inputs, 0, sizeof *inputs);
}
