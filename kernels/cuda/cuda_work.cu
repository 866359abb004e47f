/* SPDX-License-Identifier: BSD-3-Clause */
/* Work space of the lanes; lists and result rows of the slots. */
#include <string.h>

#include "kernels/cuda/device_choice.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/math/block.h"
#include "kernels/base/memory.h"

/** Return sizes for n_lane lanes (work spaces), each large enough for every arm of the model. */
static work_shape shape_of(const mill_model *m, int n_lane)
{
  work_shape s;
  memset(&s, 0, sizeof s);
  s.n_lane = n_lane;
  s.n_deriv = m->n_deriv;
  s.n_label = m->n_label;
  s.n_pixel_row = mill_n_pixel_row(m);
  s.max_pix_pad = m->max_pix_pad;
  s.max_seg_pix = m->max_seg_pix;
  s.guess_n = m->guess_n;
  s.wide = m->set.precision == MILL_FLOAT64;
  s.pitch = MILL_COLUMN_PAD; /* room for the labels, even without hidden layers */
  for (int a = 0; a < m->n_arm; a++) {
    for (int l = 0; l < m->arm[a].n_layer - 1; l++)
      if (m->arm[a].layer[l].n_out_pad > s.pitch)
        s.pitch = m->arm[a].layer[l].n_out_pad;
    if (m->arm[a].kind == MILL_EMULATOR_GRID && m->arm[a].grid.n_out > s.pitch)
      s.pitch = m->arm[a].grid.n_out;
    if (m->arm[a].kind == MILL_EMULATOR_RBF && m->arm[a].rbf.n_out > s.pitch)
      s.pitch = m->arm[a].rbf.n_out;
  }
  /* product_f32 needs rows at multiples of 16 bytes */
  s.pitch = (s.pitch + MILL_COLUMN_PAD - 1) / MILL_COLUMN_PAD * MILL_COLUMN_PAD;
  return s;
}

/** Reserve n_row rows of pitch numbers for each lane. */
template <typename type>
static row_layout<type> take_rows(char *block, size_t *at, size_t n_lane, size_t n_row,
                                  size_t pitch)
{
  return {mill_cuda_take<type>(block, at, n_lane * n_row * pitch), n_row * pitch, pitch};
}

/** Lay out s->n_lane work spaces in `block` (NULL: only measure) and return their bytes.  A lane is
 *  the work space of one star.  work [n_lane]: host copy of the lanes' mill_workspace.  Sums,
 *  normal matrices and solutions are not in `block` but in shared memory (star_shared). */
static size_t lay_out(mill_device *d, const work_shape *s, char *block, mill_workspace *work)
{
  const size_t n = (size_t)s->n_lane, n_row = (size_t)s->n_label + 1, pitch = (size_t)s->pitch;
  const mill_array *array;
  size_t count[MILL_N_WORK_COUNT], at = 0;
  device_view *v = &d->view;
  v->n_row = (int)n_row;
  v->row_pitch = n * n_row;
  v->work = mill_cuda_take<mill_workspace>(block, &at, n);
  v->row_count = mill_cuda_take<int>(block, &at, MILL_MAX_ARM);
  v->row_list = mill_cuda_take<int>(block, &at, MILL_MAX_ARM * n * n_row);
  v->input = take_rows<double>(block, &at, n, n_row, MILL_MAX_LABEL);
  for (int i = 0; i < 2; i++)
    v->hidden[i] = take_rows<double>(block, &at, n, n_row, pitch);
  v->narrow = take_rows<float>(block, &at, n, n_row, pitch);
  const int precision = s->wide ? MILL_FLOAT64 : MILL_FLOAT32;
  mill_workspace_counts(s->n_deriv, s->n_pixel_row, s->max_pix_pad, s->max_seg_pix, precision,
                        s->guess_n, count);
  count[MILL_COUNT_ERROR_SPACE] *= MILL_BLOCK_WARPS; /* one per warp, as warps may work alone */
  const int n_array = mill_workspace_arrays(&array);
  /* array 0, the grid, comes first for all lanes, then array 1 for all lanes, and so on */
  size_t end[MILL_N_WORK_REGION] = {at, 0};
  mill_lay_out(1, array, count, MILL_CUDA_ALIGN, end, block, s->n_lane, work, sizeof *work);
  end[MILL_WORK_REST] = end[MILL_WORK_GRID]; /* the other arrays begin where the grids end */
  mill_lay_out(n_array - 1, array + 1, count, MILL_CUDA_ALIGN, end, block, s->n_lane, work,
               sizeof *work);
  if (block) {
    d->d_grid = work[0].grid;
    d->grid_lane = mill_round_up(count[MILL_COUNT_GRID_BYTES], MILL_CUDA_ALIGN) /
                   (s->wide ? sizeof(double) : sizeof(float));
  }
  return end[MILL_WORK_REST];
}

int mill_cuda_free_bytes(size_t *n_free)
{
  mill_gpu_place place;
  size_t n_total = 0;
  CHECK_CUDA(cudaMemGetInfo(n_free, &n_total));
  if (mill_gpu_assigned(&place) && place.bytes > 0 && place.bytes < *n_free)
    *n_free = place.bytes;
  return MILL_OK;
}

/* keep the work space if it fits the model; else replace it, with as many lanes as memory allows */
int mill_cuda_reserve_lanes(mill_device *d)
{
  MILL_OWNED mill_workspace *work = NULL;
  void *memory = NULL;
  size_t n_free = 0, n_most = 0; /* bytes */
  work_shape shape = shape_of(&d->model, d->n_slot);
  cudaError_t status = cudaSuccess;
  if (d->arena && d->shape.n_lane <= d->n_slot) { /* fewer lanes: memory was short */
    work_shape kept = shape;
    kept.n_lane = d->shape.n_lane;
    if (memcmp(&kept, &d->shape, sizeof kept) == 0)
      return MILL_OK;
  }
  if (d->arena) {
    /* stars use memory now: half of what is free may be less than the old work space */
    n_most = lay_out(d, &d->shape, NULL, NULL);
    memory = d->arena;
    d->arena = NULL;
    CHECK_CUDA(cudaFree(memory));
  }
  MILL_CHECK(mill_cuda_free_bytes(&n_free));
  if (n_most < n_free / 2)
    n_most = n_free / 2;
  while (shape.n_lane > 1 && lay_out(d, &shape, NULL, NULL) > n_most)
    shape.n_lane /= 2;
  for (;;) {
    status = cudaMalloc(&memory, lay_out(d, &shape, NULL, NULL));
    if (status != cudaErrorMemoryAllocation || shape.n_lane == 1)
      break;
    (void)cudaGetLastError();
    shape.n_lane /= 2;
  }
  CHECK_CUDA_AT("work space of the slots", status);
  d->arena = (char *)memory;
  d->shape = shape;
  MILL_CHECK(MILL_ALLOC(shape.n_lane, &work));
  lay_out(d, &shape, d->arena, work);
  return mill_cuda_upload(d, d->view.work, work, (size_t)shape.n_lane * sizeof *work);
}

/* free what mill_cuda_reserve_book has allocated */
void mill_cuda_free_book(mill_device *d)
{
  void *const pinned[] = {d->h_fresh, d->h_listed, d->h_finished,
                          d->h_slot,  d->h_result, d->h_state};
  for (void *memory : pinned)
    mill_cuda_unpin(memory);
  (void)cudaFree(d->book);
  d->h_fresh = d->h_listed = d->h_finished = NULL;
  d->h_slot = NULL;
  d->h_result = NULL;
  d->h_state = NULL;
  d->book = NULL;
  d->n_slot = 0;
}

/* allocate the slots' lists and result rows on the device, and their pinned copies */
int mill_cuda_reserve_book(mill_device *d, int n_slot)
{
  int err = MILL_OK;
  const size_t n = (size_t)n_slot;
  void *memory = NULL;
  device_view *v = &d->view;
  if (d->n_slot == n_slot)
    return MILL_OK;
  mill_cuda_free_book(d);
  for (int pass = 0; pass < 2; pass++) { /* measure, then place */
    size_t at = 0;
    v->state = mill_cuda_take<loop_state>(d->book, &at, 1);
    v->slot = mill_cuda_take<mill_slot *>(d->book, &at, n);
    v->fresh = mill_cuda_take<int>(d->book, &at, n);
    v->listed = mill_cuda_take<int>(d->book, &at, n);
    v->active = mill_cuda_take<int>(d->book, &at, n);
    v->finished = mill_cuda_take<int>(d->book, &at, n);
    v->result = mill_cuda_take<mill_fit_result>(d->book, &at, n);
    if (pass == 0) {
      TRY_CUDA_AT("lists of the slots", cudaMalloc(&memory, at));
      d->book = (char *)memory;
    }
  }
  MILL_TRY(mill_cuda_pin(&d->h_fresh, n));
  MILL_TRY(mill_cuda_pin(&d->h_listed, n));
  MILL_TRY(mill_cuda_pin(&d->h_finished, n));
  MILL_TRY(mill_cuda_pin(&d->h_slot, n));
  MILL_TRY(mill_cuda_pin(&d->h_result, n));
  MILL_TRY(mill_cuda_pin(&d->h_state, 1));
  TRY_CUDA(cudaMemsetAsync(v->state, 0, sizeof *v->state, d->stream));
  d->n_slot = n_slot;
done:
  if (err)
    mill_cuda_free_book(d);
  return err;
}
