/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of a run choose their backend.  Every rank has its own make-believe GPUs, and one rank
 * fails.  All ranks must return the same code, and none may wait for ever. */

#include "kernels/gpu.h"
#include "src/run/backend_choice.h"
#include "src/system/status_process.h"
#include "tests/mpi/ranks.h"

static const mill_gpu_facts h200 = {"NVIDIA H200", "", 9, 0, MILL_GPU_SHARED};
static const mill_gpu_facts a100 = {"NVIDIA A100", "", 8, 0, MILL_GPU_SHARED};

enum { N_GPU = 4, N_THREAD = 2, FROM = 100 };
#define GIB ((size_t)1 << 30)

static const char result[] = "choice.h5", begun_on[] = "cuda NVIDIA H200 sm_90",
                  begun_on_both[] = "cuda NVIDIA H200 sm_90 + cpu x86-64-v4";
static char kept[512];

/* This rank's machine. */
static struct {
  int driver, n_gpu, try_code, backend_code;
  mill_gpu_facts gpu[N_GPU];
  size_t free_bytes;
  int n_tried, n_released; /* what was done there */
} machine;

/* ---- in the place of CUDA ---- */

int mill_gpu_is_built(void)
{
  return 1;
}

int mill_gpu_look(mill_gpu_node *node, mill_gpu_facts **gpu)
{
  int err = MILL_OK;
  memset(node, 0, sizeof *node);
  MILL_TRY(MILL_ALLOC(N_GPU, gpu));
  memcpy(*gpu, machine.gpu, sizeof machine.gpu);
  *node = (mill_gpu_node){machine.driver, 13000, "80-real 90-real", machine.n_gpu, *gpu};
done:
  return err;
}

int mill_gpu_try(int gpu, const char *name, size_t *free_bytes)
{
  assert_in_range(gpu, 0, machine.n_gpu - 1);
  assert_string_equal(name, machine.gpu[gpu].name);
  machine.n_tried++;
  *free_bytes = machine.free_bytes;
  return machine.try_code == MILL_OK
             ? MILL_OK
             : mill_error_set(machine.try_code, __FILE__, __LINE__, "the GPU %s is busy", name);
}

void mill_gpu_release(void)
{
  machine.n_released++;
  mill_gpu_assign(NULL);
}

const mill_backend *mill_backend_cuda(int *err)
{
  static const mill_backend backend = {.name = "cuda"};
  mill_gpu_place place;
  assert_true(mill_gpu_assigned(&place));
  *err = machine.backend_code == MILL_OK
             ? MILL_OK
             : mill_error_set(machine.backend_code, __FILE__, __LINE__, "it does not start");
  return *err == MILL_OK ? &backend : NULL;
}

static void set_gpus(const mill_gpu_facts *kind)
{
  for (int i = 0; i < N_GPU; i++) {
    machine.gpu[i] = *kind;
    machine.gpu[i].uuid[0] = (unsigned char)(1 + i);
  }
}

/* Set up a machine on which every rank sees n_gpu H200 GPUs. */
static void good_machine(int n_gpu)
{
  memset(&machine, 0, sizeof machine);
  machine.driver = 13000;
  machine.n_gpu = n_gpu;
  machine.free_bytes = 140 * GIB;
  set_gpus(&h200);
  mill_gpu_assign(NULL);
}

/* Faults of the last rank's machine.  If its driver is too old, it reports no GPU. */
static const struct fault {
  const char *what, *message;
  int code, driver, is_without, try_code, backend_code;
  int least;   /* number of ranks from which on the fault shows */
  int is_late; /* after the ranks have been placed */
  size_t free_bytes;
  const mill_gpu_facts *kind;
} fault[] = {
    {"no GPU", "this process sees no GPU", MILL_ERR_CONFIG, 13000, .is_without = 1},
    {"no driver", "no NVIDIA driver", MILL_ERR_CONFIG, 0, .is_without = 1},
    {"busy", "is busy", MILL_ERR_BACKEND, 13000, .try_code = MILL_ERR_BACKEND},
    {"memory", "512 MiB free; a rank needs 1024", MILL_ERR_MEMORY, 13000, .free_bytes = GIB / 2},
    {"two kinds", "GPUs of one kind", MILL_ERR_BACKEND, 13000, .least = 2, .kind = &a100},
    {"no start", "it does not start", MILL_ERR_BACKEND, 13000, .backend_code = MILL_ERR_BACKEND,
     .is_late = 1},
    {"old driver", "NVIDIA driver is for CUDA", MILL_ERR_CONFIG, 12000, .is_without = 1}};
enum { N_FAULT = sizeof fault / sizeof fault[0] };

static void faulty_machine(const struct fault *f)
{
  good_machine(mpi.size);
  if (mpi.rank == mpi.size - 1) {
    machine.driver = f->driver;
    machine.n_gpu = f->is_without ? 0 : machine.n_gpu;
    machine.try_code = f->try_code;
    machine.backend_code = f->backend_code;
    machine.free_bytes = f->free_bytes ? f->free_bytes : machine.free_bytes;
    set_gpus(f->kind ? f->kind : &h200);
  }
  mill_error_clear();
}

/* This rank has a GPU, which n_sharing ranks share. */
static void assert_placed(int gpu, int n_sharing)
{
  mill_gpu_place place;
  assert_true(mill_gpu_assigned(&place));
  assert_int_equal(place.gpu, gpu);
  assert_int_equal(place.n_sharing, n_sharing);
  assert_int_equal(place.bytes, 140 * GIB / (size_t)n_sharing);
}

/* ---- backend cuda ---- */

MILL_TEST(each_rank_has_its_gpu)
{
  good_machine(mpi.size);
  assert_int_equal(mill_backend_place(&mpi, 1), MILL_OK);
  assert_placed(mpi.rank, 1);
}

MILL_TEST(ranks_share_one_gpu)
{
  good_machine(1);
  assert_int_equal(mill_backend_place(&mpi, 1), MILL_OK);
  assert_placed(0, mpi.size);
  /* too little for all of them together */
  good_machine(1);
  machine.free_bytes = (size_t)mpi.size * GIB - 1;
  assert_int_equal(mill_backend_place(&mpi, 1), MILL_ERR_MEMORY);
}

MILL_TEST(exclusive_gpu_is_not_shared)
{
  good_machine(1);
  machine.gpu[0].mode = MILL_GPU_EXCLUSIVE;
  if (mpi.size == 1) {
    assert_int_equal(mill_backend_place(&mpi, 1), MILL_OK);
    return;
  }
  assert_int_equal(mill_backend_place(&mpi, 1), MILL_ERR_BACKEND);
  assert_says("exclusive");
  assert_int_equal(machine.n_tried, 0);
}

MILL_TEST(a_rank_without_ends_all)
{
  for (int i = 0; i < N_FAULT; i++) {
    mill_gpu_place place;
    if (fault[i].is_late)
      continue;
    faulty_machine(&fault[i]);
    const int code = mill_backend_place(&mpi, 1);
    if (code != (mpi.size >= fault[i].least ? fault[i].code : MILL_OK))
      fail_msg("%s: code %d: %s", fault[i].what, code, mill_error_message());
    assert_int_equal(mill_gpu_assigned(&place), code == MILL_OK);
    if (code != MILL_OK) {
      assert_says(fault[i].message);
      assert_says("--backend cpu");
      assert_int_equal(strstr(mill_error_message(), "--backend cuda+cpu") != NULL, mpi.size > 1);
    }
  }
}

/* ---- backend cuda+cpu ---- */

MILL_TEST(the_first_ranks_have_the_gpus)
{
  int has_gpu = -1;
  mill_gpu_place place;
  /* one for each */
  good_machine(mpi.size);
  assert_int_equal(mill_backend_place_some(&mpi, &has_gpu), MILL_OK);
  assert_true(has_gpu && mill_gpu_assigned(&place) && place.gpu == mpi.rank);
  /* With fewer GPUs than ranks the first ranks have one each, and no GPU is shared. */
  for (int n_gpu = 1; n_gpu < mpi.size; n_gpu++) {
    good_machine(n_gpu);
    for (int i = 0; i < n_gpu; i++)
      machine.gpu[i].mode = MILL_GPU_EXCLUSIVE;
    assert_int_equal(mill_backend_place_some(&mpi, &has_gpu), MILL_OK);
    assert_int_equal(has_gpu, mpi.rank < n_gpu);
    assert_int_equal(mill_gpu_assigned(&place), has_gpu);
    assert_int_equal(machine.n_tried > 0, has_gpu);
    if (has_gpu)
      assert_placed(mpi.rank, 1);
  }
  /* the first rank sees no GPU; this does not change which GPU each other rank gets */
  good_machine(mpi.rank == 0 ? 0 : mpi.size);
  if (mpi.size > 1) {
    assert_int_equal(mill_backend_place_some(&mpi, &has_gpu), MILL_OK);
    assert_int_equal(has_gpu, mpi.rank > 0);
    assert_int_equal(mill_gpu_assigned(&place), has_gpu);
    assert_true(!has_gpu || (place.gpu == mpi.rank && place.n_sharing == 1));
  }
  /* each rank sees its own alone */
  good_machine(1);
  machine.gpu[0].uuid[0] = (unsigned char)(1 + mpi.rank);
  assert_int_equal(mill_backend_place_some(&mpi, &has_gpu), MILL_OK);
  assert_true(has_gpu && mill_gpu_assigned(&place) && place.gpu == 0);
}

MILL_TEST(a_rank_without_fits_on_the_cpu)
{
  const int is_last = mpi.rank == mpi.size - 1;
  for (int i = 0; i < N_FAULT; i++) {
    int has_gpu = -1;
    mill_gpu_place place;
    if (fault[i].is_late)
      continue;
    faulty_machine(&fault[i]);
    const int code = mill_backend_place_some(&mpi, &has_gpu);
    /* a GPU that fails ends the run; a missing GPU does not, if another rank has one */
    const int is_none = fault[i].is_without && fault[i].driver != 12000;
    const int expected =
        mpi.size < fault[i].least || (is_none && mpi.size > 1) ? MILL_OK : fault[i].code;
    if (code != expected)
      fail_msg("%s: code %d: %s", fault[i].what, code, mill_error_message());
    if (code == MILL_OK) {
      assert_int_equal(has_gpu, !(is_none && is_last));
      assert_int_equal(mill_gpu_assigned(&place), has_gpu);
      continue;
    }
    assert_says(is_none ? "no rank sees a GPU" : fault[i].message);
    assert_says("backend cuda+cpu: ");
    assert_says("--backend cpu");
  }
}

/* ---- backend auto ---- */

/* Return the backend chosen for n_row rows of a result that was begun on `device` (NULL: a new
 * result).  expected: the error code; what: the fault of the machine, for messages. */
static const char *settled(const char *what, const char *device, int64_t n_row, int expected)
{
  const char *choice = NULL;
  int has_gpu = -1;
  mill_gpu_place place;
  const int code = mill_backend_settle(&mpi, MILL_CROSSOVER_FIT, result, device, n_row, N_THREAD,
                                       &choice, &has_gpu);
  if (code != expected)
    fail_msg("%s: code %d: %s", what, code, mill_error_message());
  if (code == MILL_OK)
    assert_int_equal(has_gpu, mill_gpu_assigned(&place));
  return choice;
}

MILL_TEST(auto_takes_gpus_for_many_rows)
{
  const int64_t n_enough = (int64_t)FROM * mpi.size;
  good_machine(mpi.size);
  assert_string_equal(settled("none", NULL, n_enough, MILL_OK), "cuda");
  assert_placed(mpi.rank, 1);
  good_machine(mpi.size);
  assert_string_equal(settled("none", NULL, n_enough - 1, MILL_OK), "cpu");
  assert_int_equal(machine.n_tried, 0);
}

MILL_TEST(auto_takes_the_cpu_when_one_rank_has_no_gpu)
{
  for (int i = 0; i < N_FAULT; i++) {
    mill_gpu_place place;
    faulty_machine(&fault[i]);
    const char *choice = settled(fault[i].what, NULL, (int64_t)FROM * mpi.size, MILL_OK);
    /* a single rank with another kind of GPU gets the CPU: no crossover was measured for it */
    if (strcmp(choice, "cpu") != 0)
      fail_msg("%s: %s: %s", fault[i].what, choice, mill_error_message());
    assert_false(mill_gpu_assigned(&place));
    if (mpi.size > 1)
      assert_int_equal(machine.n_released, 1);
  }
  good_machine(1);
  machine.gpu[0].mode = MILL_GPU_EXCLUSIVE;
  assert_string_equal(settled("none", NULL, (int64_t)FROM * mpi.size, MILL_OK),
                      mpi.size == 1 ? "cuda" : "cpu");
}

MILL_TEST(a_result_begun_on_a_gpu)
{
  const char *choice = NULL;
  good_machine(mpi.size);
  assert_string_equal(settled("none", begun_on, 1, MILL_OK), "cuda");
  good_machine(mpi.size);
  assert_string_equal(settled("none", NULL, 1, MILL_OK), "cpu"); /* --overwrite */
  /* a run begun on GPU and CPU continues on both, whether or not every rank has a GPU */
  good_machine(1);
  assert_string_equal(settled("none", begun_on_both, 1, MILL_OK), "cuda+cpu");
  assert_int_equal(machine.n_tried > 0, mpi.rank == 0);
  good_machine(0);
  settled("no GPU", begun_on_both, 1, MILL_ERR_OUTPUT);
  assert_says(result);
  for (int i = 0; i < N_FAULT; i++) {
    faulty_machine(&fault[i]);
    /* Without a GPU the result cannot be continued.  A GPU that fails keeps its error code. */
    const int code = fault[i].code == MILL_ERR_CONFIG ? MILL_ERR_OUTPUT : fault[i].code;
    const int shows = mpi.size >= fault[i].least;
    settled(fault[i].what, begun_on, 1, shows ? code : MILL_OK);
    if (!shows)
      continue;
    assert_says(fault[i].message);
    assert_says(result);
    assert_says("--overwrite");
    assert_null(strstr(mill_error_message(), "--backend cpu"));
  }
  /* a plan needs no GPU, and takes none */
  for (int is_new = 0; is_new < 2; is_new++) {
    faulty_machine(&fault[2]);
    assert_ok(mill_backend_settle(&mpi, MILL_CROSSOVER_FIT, result, is_new ? NULL : begun_on,
                                  (int64_t)FROM * mpi.size, N_THREAD, &choice, NULL));
    assert_string_equal(choice, "cuda");
    assert_int_equal(machine.n_tried, 0);
  }
}

/* Is there a crossover for n_thread threads?  why: the reason if there is none. */
static int finds(int n_thread, mill_crossover *line, char why[1536])
{
  int found = -1;
  assert_ok(mill_backend_crossover(MILL_CROSSOVER_FIT, n_thread, line, &found, why, 1536));
  return found;
}

MILL_TEST(crossover_and_why_there_is_none)
{
  char why[1536] = "";
  mill_crossover line;
  good_machine(mpi.size);
  assert_int_equal(finds(N_THREAD, &line, why), 1);
  assert_int_equal(line.from, FROM);
  assert_int_equal(finds(N_THREAD + 1, &line, why), 0);
  assert_string_equal(line.gpu, "cuda NVIDIA H200 sm_90");
  assert_non_null(strstr(why, kept));
  machine.n_gpu = 0;
  assert_int_equal(finds(N_THREAD, &line, why), 0);
  assert_string_equal(line.gpu, "");
  assert_non_null(strstr(why, "sees no GPU"));
  setenv("STARMILL_CROSSOVER", "/nowhere/crossover", 1);
  assert_int_equal(finds(N_THREAD, &line, why), 0);
  assert_non_null(strstr(why, "is not measured yet"));
  setenv("STARMILL_CROSSOVER", kept, 1);
}

static MILL_FIXTURE(set_up)
{
  mill_crossover line = {.from = FROM, .n_thread = N_THREAD, .date = "2026-11-21T18:00:00Z"};
  mill_gpu_backend_name(&h200, line.gpu, sizeof line.gpu);
  mill_cpu_model(line.cpu, sizeof line.cpu);
  const char *base = getenv("TMPDIR");
  snprintf(kept, sizeof kept, "%s/choice.crossover", base && *base ? base : "/tmp");
  setenv("STARMILL_CROSSOVER", kept, 1);
  const int err = mill_mpi_agree(&mpi, mpi.rank == 0 ? mill_crossover_keep(kept, &line) : MILL_OK);
  if (err != MILL_OK)
    fprintf(stderr, "%s\n", mill_error_message());
  return err;
}

static MILL_FIXTURE(clean_up)
{
  MPI_Barrier(mpi.comm);
  return mpi.rank == 0 ? unlink(kept) : 0;
}

MILL_RANKS_TEST_MAIN(set_up, clean_up)
