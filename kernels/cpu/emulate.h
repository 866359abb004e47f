/* SPDX-License-Identifier: BSD-3-Clause */
/** The emulator on a CPU: templates of one arm for a batch of slots. */
#pragma once

#include "kernels/base/timing.h"
#include "kernels/cpu/cpu_real.h"
#include "kernels/math/activation.h"
#include "kernels/math/linalg.h"
#include "kernels/math/rbf.h"
#include "kernels/math/spline_grid.h"
#include "kernels/math/vector.h"
#include "kernels/star/blocks/template.h"
#include "kernels/star/logic/polish.h"

#define layer_product_f32 MILL_ISA_SYMBOL(mill_layer_product_f32)
#define layer_product_f64 MILL_ISA_SYMBOL(mill_layer_product_f64)

enum {
  MILL_GROUP = 32,      /**< slots per group; a group shares a pass over the emulator's weights */
  MILL_BATCH_ROWS = 160 /**< rows that share one pass over the emulator's weights */
};
_Static_assert(1 + MILL_MAX_LABEL <= MILL_BATCH_ROWS, "a Jacobian is one batch at most");
_Static_assert((int)MILL_GROUP <= (int)MILL_N_PROFILE, "more slots in a group than velocities");

/** Work space of one thread. */
typedef struct mill_lane {
  int max_seg_pix;
  double *front[2];  /**< [1 + MILL_MAX_LABEL][MILL_ROW_PITCH] labels; output of grid or RBF */
  double *hidden[2]; /**< [MILL_BATCH_ROWS][MILL_ROW_PITCH] inputs and outputs of layers */
  float *narrow[2];  /**< the same shape */
  char *memory;      /**< emulator output of each slot; the slots share other work space */
  mill_workspace work[MILL_GROUP];
  mill_slot *ahead; /**< [MILL_GROUP] slot copies for the next points of a posterior, or NULL */
  mill_timing timing;
} mill_lane;

/** Task: compute one star's inputs of the last layer from a spline grid or radial functions. */
typedef struct mill_front_task {
  const mill_model_arm *arm;
  int n_tangent;
  const double *in; /**< [1 + n_tangent][MILL_ROW_PITCH] */
  double *out;      /**< the same shape */
} mill_front_task;

/** Return the bytes of a template's number: float or double. */
static size_t real_bytes(const mill_model *m)
{
  return m->set.precision == MILL_FLOAT64 ? sizeof(double) : sizeof(float);
}

/** Grid points that cut_arm keeps beyond the reach of rotation and blur, so that the cut does not
 *  change the splines at the pixels. */
enum { MILL_PART_EDGE = MILL_COLUMN_PAD };

/** Cut arm i_arm of `part`, a copy of the model, to the grid points that the pixels of n slots need
 *  at any velocity.  The templates at the pixels stay the same, bit for bit. */
static void cut_arm(const mill_model *m, int i_arm, int n, mill_slot *const *slot, mill_model *part)
{
  const mill_model_arm *whole = &m->arm[i_arm];
  mill_model_arm *arm = &part->arm[i_arm];
  mill_layer *last = &arm->layer[whole->n_layer - 1];
  double low = whole->n_pix, high = 0.0;
  for (int j = 0; j < n; j++) {
    double vsini_km_s = slot[j]->theta[MILL_PAR_VSINI];
    if (slot[j]->stored != 0) /* a stored guess template serves starts of every v sin i */
      vsini_km_s = fmax(vsini_km_s, m->guess_vsini[m->n_guess_vsini - 1]);
    const double vsini_points = vsini_km_s / (MILL_C_KM_S * whole->ln_step);
    const double edge = mill_rotation_slope_half_width(m->set.rotation, vsini_points) +
                        ceil(MILL_BLUR_REACH * slot[j]->blur[i_arm]) + MILL_PART_EDGE;
    for (int i = 0; i < slot[j]->n_segment; i++) {
      const mill_waveset *ws = slot[j]->segment[i].ws;
      if (slot[j]->segment[i].arm != i_arm)
        continue;
      /* ln of the rest wavelengths of the first and last pixel at the extreme velocities */
      const double left = ws->ln_wave[0] + mill_doppler_ln(m->set.max_vel_km_s);
      const double right = ws->ln_wave[ws->n_pix - 1] + mill_doppler_ln(m->set.min_vel_km_s);
      low = fmin(low, (left - whole->ln_wave0) / whole->ln_step - edge);
      high = fmax(high, (right - whole->ln_wave0) / whole->ln_step + edge);
    }
  }
  /* move the part's pointers into the whole arm's arrays, by multiples of MILL_COLUMN_PAD */
  const int first = low > 0.0 ? (int)low / MILL_COLUMN_PAD * MILL_COLUMN_PAD : 0;
  const int end = high < whole->n_pix ? (int)ceil(high) : whole->n_pix;
  const size_t at = (size_t)first, real = real_bytes(m);
  const size_t error_points = at * (size_t)(whole->error.finer > 1 ? whole->error.finer : 1);
  *arm = *whole;
  arm->first = first;
  arm->n_pix = end - first;
  last->n_out_pad = (int)mill_round_up((size_t)arm->n_pix, MILL_COLUMN_PAD);
  last->weight = (const char *)last->weight + at * (size_t)last->n_in * real;
  last->bias = (const char *)last->bias + at * real;
  if (arm->stored)
    arm->stored += at;
  if (arm->error.fraction)
    arm->error.fraction += error_points;
  if (arm->error.component)
    arm->error.component += error_points;
}

static void body_front(mill_block *b, void *arg)
{
  const mill_front_task *t = arg;
  if (t->arm->kind == MILL_EMULATOR_GRID)
    mill_block_spline_grid(b, &t->arm->grid, t->n_tangent, t->in, MILL_ROW_PITCH, t->out,
                           MILL_ROW_PITCH);
  else
    mill_block_rbf(b, &t->arm->rbf, t->n_tangent, t->in, MILL_ROW_PITCH, t->out, MILL_ROW_PITCH);
}

/** Apply the SiLU to the value row, and its slope to the tangent rows (derivatives of the value
 *  row).  Tangent rows are `thin` (float) or, if thin is NULL, `tangent` (double). */
static void activate(int n, double *value, int n_tangent, double *const *tangent,
                     float *const *thin)
{
  double slope[MILL_MAX_WIDTH];
  MILL_SIMD
  for (int i = 0; i < n; i++)
    value[i] = mill_silu(value[i], &slope[i]);
  for (int t = 0; t < n_tangent && !thin; t++) {
    double *row = tangent[t];
    MILL_SIMD
    for (int i = 0; i < n; i++)
      row[i] *= slope[i];
  }
  for (int t = 0; t < n_tangent && thin; t++) {
    float *row = thin[t];
    MILL_SIMD
    for (int i = 0; i < n; i++)
      row[i] *= (float)slope[i];
  }
}

static int n_tangent_of(const mill_model *m, const mill_slot *slot)
{
  return slot->request == MILL_REQ_TANGENTS ? m->n_label : 0;
}

/** The rows of a batch: first a value row for each slot, then all tangent rows (derivatives in
 *  labels).  Row r is at element r * MILL_ROW_PITCH of lane->hidden (float64) if r < n_wide, else
 *  of lane->narrow (float32). */
typedef struct mill_rows {
  int n_slot, n_row;
  int n_wide;                                   /**< rows from here on are float32 in all layers */
  int first[MILL_GROUP], n_tangent[MILL_GROUP]; /**< a slot's first tangent row, and their number */
  int is_value[MILL_BATCH_ROWS];
} mill_rows;

/** Number the rows of a batch (mill_rows). */
static void number_rows(const mill_model *m, int n_slot, mill_slot *const *slot, mill_rows *rows)
{
  rows->n_slot = n_slot;
  rows->n_row = n_slot;
  for (int s = 0; s < n_slot; s++) {
    rows->first[s] = rows->n_row;
    rows->n_tangent[s] = n_tangent_of(m, slot[s]);
    rows->n_row += rows->n_tangent[s];
  }
  rows->n_wide = m->set.precision == MILL_FLOAT64 ? rows->n_row : n_slot;
  for (int r = 0; r < rows->n_row; r++)
    rows->is_value[r] = r < n_slot;
}

/** Write the emulator's input for a slot: mapped labels, then their derivative in each label. */
static void label_rows(const mill_model *m, const mill_slot *slot, int n_tangent, double *row)
{
  mill_map_labels(m, slot->theta, row);
  for (int t = 1; t <= n_tangent; t++) {
    double *tangent = row + (size_t)t * MILL_ROW_PITCH;
    for (int l = 0; l < m->n_label; l++)
      tangent[l] = 0.0;
    tangent[t - 1] = mill_label_map_slope(&m->label[t - 1], slot->theta[MILL_PAR_LABEL0 + t - 1]);
  }
}

/** Write the first layer's input rows: labels, or the output of a spline grid or of an RBF. */
static void first_rows(const mill_model *m, const mill_model_arm *arm, mill_slot *const *slot,
                       const mill_rows *rows, mill_lane *lane)
{
  const int n_in = arm->layer[0].n_in;
  for (int s = 0; s < rows->n_slot; s++) {
    double *row = lane->front[0];
    label_rows(m, slot[s], rows->n_tangent[s], row);
    if (arm->kind != MILL_EMULATOR_MLP) {
      mill_front_task task = {arm, rows->n_tangent[s], row, lane->front[1]};
      mill_block_run(body_front, &task);
      row = lane->front[1];
    }
    for (int t = 0; t <= rows->n_tangent[s]; t++) { /* value row, then tangent rows */
      const int r = t == 0 ? s : rows->first[s] + t - 1;
      const double *from = row + (size_t)t * MILL_ROW_PITCH;
      for (int i = 0; i < n_in; i++) {
        if (r < rows->n_wide) /* float64, else float32 (mill_rows) */
          lane->hidden[0][(size_t)r * MILL_ROW_PITCH + (size_t)i] = from[i];
        else
          lane->narrow[0][(size_t)r * MILL_ROW_PITCH + (size_t)i] = (float)from[i];
      }
    }
  }
}

/** Compute a hidden layer and its activation, from the lane's buffers [from] to [1 - from].  The
 *  first n_wide rows are float64 (lane->hidden), the others float32 (lane->narrow). */
static void hidden_layer(const mill_layer *layer, const mill_rows *rows, int from, mill_lane *lane)
{
  double *to[MILL_BATCH_ROWS];
  float *thin[MILL_BATCH_ROWS];
  for (int r = 0; r < rows->n_row; r++) {
    to[r] = lane->hidden[1 - from] + (size_t)r * MILL_ROW_PITCH;
    thin[r] = lane->narrow[1 - from] + (size_t)r * MILL_ROW_PITCH;
  }
  const int n_wide = rows->n_wide, n_thin = rows->n_row - n_wide;
  layer_product_f64(layer, layer->weight, n_wide, lane->hidden[from], rows->is_value, to);
  if (n_thin > 0)
    layer_product_f32(layer, layer->narrow, n_thin,
                      lane->narrow[from] + (size_t)n_wide * MILL_ROW_PITCH, rows->is_value + n_wide,
                      thin + n_wide);
  for (int s = 0; s < rows->n_slot; s++) {
    const int first = rows->first[s];
    activate(layer->n_out, to[s], rows->n_tangent[s], to + first,
             first < n_wide ? NULL : thin + first);
  }
}

/** Emulate one arm for a batch of slots with MILL_BATCH_ROWS rows at most.  lane->work[i].grid gets
 *  the template of slot i and, for a Jacobian, its derivatives in the labels.  Rows are max_pix_pad
 *  elements apart.  Element i of a row is grid point i of the arm, even if the arm is cut.
 *
 *  Templates are float64 up to the last layer: rounding there would act like a change of labels.
 *  The last layer, the expensive one, and all layers of derivatives have the run's precision. */
static void emulate(const mill_model *m, int i_arm, int n_slot, mill_slot *const *slot,
                    mill_lane *lane)
{
  const mill_model_arm *arm = &m->arm[i_arm];
  const mill_layer *last = &arm->layer[arm->n_layer - 1];
  const int wide = m->set.precision == MILL_FLOAT64;
  mill_rows rows;
  double *to[MILL_BATCH_ROWS];
  float *to32[MILL_BATCH_ROWS];
  int from = 0;
  number_rows(m, n_slot, slot, &rows);
  first_rows(m, arm, slot, &rows, lane);
  for (int l = 0; l < arm->n_layer - 1; l++) {
    hidden_layer(&arm->layer[l], &rows, from, lane);
    from = 1 - from;
  }
  for (int s = 0; s < n_slot; s++)
    for (int t = 0; t <= rows.n_tangent[s]; t++) {
      const int r = t == 0 ? s : rows.first[s] + t - 1;
      double *h = lane->hidden[from] + (size_t)r * MILL_ROW_PITCH;
      float *thin = lane->narrow[from] + (size_t)r * MILL_ROW_PITCH;
      const size_t at = (size_t)t * (size_t)m->max_pix_pad + (size_t)arm->first;
      /* the mean needs float64, the last layer float32 */
      for (int k = 0; k < last->n_in && !wide; k++) {
        if (r < rows.n_wide)
          thin[k] = (float)h[k];
        else
          h[k] = (double)thin[k];
      }
      lane->work[s].mean[t] =
          mill_dot(last->n_in, arm->mean_weight, h) + (t == 0 ? arm->mean_bias : 0.0);
      to[r] = (double *)lane->work[s].grid + at;
      to32[r] = (float *)lane->work[s].grid + at;
    }
  if (wide)
    layer_product_f64(last, last->weight, rows.n_row, lane->hidden[from], rows.is_value, to);
  else
    layer_product_f32(last, last->weight, rows.n_row, lane->narrow[from], rows.is_value, to32);
}

/** Copy guess template k, which emulate has written to work, to rows and mean.  These are laid out
 *  like mill_model_arm.stored and stored_mean of the whole arm. */
static void store_template(const mill_model *m, int i_arm, int k, const mill_workspace *work,
                           float *rows, double *mean)
{
  const mill_model_arm *arm = &m->arm[i_arm];
  const size_t n_row = (size_t)(1 + m->n_label), first = (size_t)arm->first;
  for (size_t t = 0; t < n_row; t++) {
    const size_t at = (size_t)k * n_row + t;
    memcpy(rows + at * (size_t)arm->n_pix_pad + first,
           (const float *)work->grid + t * (size_t)m->max_pix_pad + first,
           (size_t)arm->n_pix * sizeof *rows);
    mean[at] = work->mean[t];
  }
}

/** Is the slot's guess template stored, where the slot needs it?  part: a copy of m, to be cut. */
static int stored_is_there(const mill_model *m, int i_arm, mill_slot *slot, mill_model *part)
{
  const mill_stored *own = &m->arm[i_arm].stored_own[slot->stored - 1];
  const mill_model_arm *arm = &part->arm[i_arm];
  int state;
#pragma omp atomic read seq_cst
  state = own->state;
  if (!(state & MILL_STORED_MADE))
    return 0;
  cut_arm(m, i_arm, 1, &slot, part);
  return own->first <= arm->first && arm->first + arm->n_pix <= own->end;
}

/** Claim the slot's guess template, which stored_end will store.  If another slot has claimed this
 *  template, make slot->stored negative: this slot then stores nothing. */
static void stored_begin(const mill_model *m, int i_arm, mill_slot *slot)
{
  mill_stored *own = &m->arm[i_arm].stored_own[slot->stored - 1];
  int before;
#pragma omp atomic capture seq_cst
  {
    before = own->state;
    own->state |= MILL_STORED_BEGUN;
  }
  if (before != 0)
    slot->stored = -slot->stored;
}

/** Store the slot's guess template, emulated with `part`, a cut copy of the model m. */
static void stored_end(const mill_model *m, int i_arm, const mill_slot *slot,
                       const mill_model *part, const mill_workspace *work)
{
  const mill_model_arm *arm = &m->arm[i_arm];
  mill_stored *own = &arm->stored_own[slot->stored - 1];
  store_template(part, i_arm, slot->stored - 1, work, arm->stored, arm->stored_mean);
  own->first = part->arm[i_arm].first;
  own->end = own->first + part->arm[i_arm].n_pix;
#pragma omp atomic seq_cst
  own->state |= MILL_STORED_MADE;
}
