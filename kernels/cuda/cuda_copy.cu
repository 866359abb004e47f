/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the GPU and copies to and from it.
 *
 *  Uploads use one stream, downloads of rows and models another; neither waits for rounds.
 *  Pixels in the readers' pinned memory are uploaded directly, others through pinned buffers. */
#include <string.h>

#include "kernels/cuda/cuda_device.h"
#include "kernels/base/memory.h"

/** CUDA may need memory when kernels run: an allocation of LARGE_BYTES or more must leave
 *  RESERVE_BYTES free, or 1 / RESERVE_PART of the total if this is less. */
static const size_t LARGE_BYTES = (size_t)64 << 10;
static const size_t RESERVE_BYTES = (size_t)512 << 20;
enum { RESERVE_PART = 16 };

/** Adjacent pinned pieces of this total size or more are uploaded directly.  Smaller
 *  pieces share a buffer and its copy call, since a call for each would take longer. */
static const size_t DIRECT_BYTES = (size_t)32 << 10;

int mill_cuda_flush(mill_device *d)
{
  int err = MILL_OK;
  for (int i = 0; i < d->n_send; i++)
    TRY_CUDA(cudaMemcpyAsync(d->send[i].to, d->send[i].from, d->send[i].bytes,
                             cudaMemcpyHostToDevice, d->up));
done:
  d->n_send = 0;
  return err;
}

/** Switch to the next upload buffer, after waiting for the copies from it. */
static int next_stage(mill_device *d)
{
  MILL_CHECK(mill_cuda_flush(d));
  CHECK_CUDA(cudaEventRecord(d->stage_free[d->i_stage], d->up));
  d->i_stage = (d->i_stage + 1) % MILL_N_STAGE;
  CHECK_CUDA(cudaEventSynchronize(d->stage_free[d->i_stage]));
  d->staged = 0;
  return MILL_OK;
}

/** May the last pending copy be extended by a piece that goes to `to` in GPU memory?  *gap: bytes
 *  between the end of that copy and `to`. */
static int follows(const mill_device *d, const char *to, size_t *gap)
{
  if (d->n_send == 0 || d->send[d->n_send - 1].stays)
    return 0;
  const mill_upload *last = &d->send[d->n_send - 1];
  const uintptr_t end = (uintptr_t)last->to + last->bytes, begin = (uintptr_t)to;
  *gap = begin - end;
  return begin >= end && *gap < MILL_ARRAY_BYTES && begin % MILL_ARRAY_BYTES == 0 &&
         d->staged + *gap < MILL_STAGE_BYTES;
}

/** Copy a piece to the upload buffers (zeros if piece->from is NULL) and queue its upload.  If the
 *  piece follows the last pending upload in GPU memory, extend this upload. */
static int stage_piece(mill_device *d, const mill_upload *piece)
{
  char *dest = (char *)piece->to;
  const char *source = (const char *)piece->from;
  for (size_t left = piece->bytes; left > 0;) {
    size_t gap;
    if (follows(d, dest, &gap)) { /* extend the last upload; the gap is padding */
      d->staged += gap;
      d->send[d->n_send - 1].bytes += gap;
    } else {
      if (d->n_send == MILL_CUDA_MAX_SEND)
        MILL_CHECK(mill_cuda_flush(d));
      d->staged = mill_round_up(d->staged, MILL_CUDA_ALIGN);
      if (d->staged >= MILL_STAGE_BYTES)
        MILL_CHECK(next_stage(d));
      d->send[d->n_send++] = (mill_upload){dest, d->stage[d->i_stage] + d->staged, 0, 0};
    }
    const size_t room = MILL_STAGE_BYTES - d->staged, n = left < room ? left : room;
    const mill_upload copy = {d->stage[d->i_stage] + d->staged, source, n, 0};
    mill_host_copy(&copy);
    d->staged += n;
    d->send[d->n_send - 1].bytes += n;
    dest += n;
    if (source)
      source += n;
    left -= n;
    if (d->staged >= MILL_STAGE_BYTES)
      MILL_CHECK(next_stage(d));
  }
  return MILL_OK;
}

/** Join the first pieces to one copy, *all; returns how many, 1 or more.  A pinned piece is joined
 *  if its offset from the first piece is the same in host memory and in GPU memory. */
static int join_pieces(const mill_upload *piece, int n, mill_upload *all)
{
  int i = 1;
  *all = *piece;
  for (; i < n && piece->stays && piece[i].stays; i++) {
    const ptrdiff_t at = (const char *)piece[i].to - (const char *)piece->to;
    if (!piece->from || !piece[i].from || (const char *)piece->from + at != piece[i].from ||
        at < (ptrdiff_t)all->bytes || at - all->bytes >= MILL_ARRAY_BYTES)
      break;
    all->bytes = (size_t)at + piece[i].bytes;
  }
  return i;
}

/* upload n pieces: large pinned ones (`stays`) directly, the others through the upload buffers */
int mill_cuda_upload_all(mill_device *d, const mill_upload *piece, int n)
{
  int n_direct = 0;
  mill_upload all; /* pieces joined to one copy */
  size_t most = 0; /* bytes of all unpinned pieces, at most */
  CHECK_CUDA(cudaSetDevice(d->id));
  /* unpinned pieces share a buffer if they fit: adjacent ones become one copy */
  for (int i = 0; i < n; i++)
    most += piece[i].stays ? 0 : piece[i].bytes + MILL_ARRAY_BYTES;
  if (most <= MILL_STAGE_BYTES &&
      mill_round_up(d->staged, MILL_CUDA_ALIGN) + most > MILL_STAGE_BYTES)
    MILL_CHECK(next_stage(d));
  for (int i = 0, n_joined; i < n; i += n_joined) {
    n_joined = join_pieces(piece + i, n - i, &all);
    if (all.stays && all.from && all.bytes >= DIRECT_BYTES) {
      if (d->n_send == MILL_CUDA_MAX_SEND)
        MILL_CHECK(mill_cuda_flush(d));
      d->send[d->n_send++] = all;
      n_direct++;
      continue;
    }
    for (int k = 0; k < n_joined; k++)
      MILL_CHECK(stage_piece(d, &piece[i + k]));
  }
  /* queue the direct copies now: mill_cuda_settle waits only for copies that are in the stream */
  return n_direct > 0 ? mill_cuda_flush(d) : MILL_OK;
}

int mill_cuda_settle(mill_device *d)
{
  CHECK_CUDA(cudaSetDevice(d->id));
  CHECK_CUDA(cudaEventSynchronize(d->settled));
  CHECK_CUDA(cudaEventRecord(d->settled, d->up));
  return MILL_OK;
}

int mill_cuda_upload(mill_device *d, void *to, const void *from, size_t bytes)
{
  const mill_upload piece = {to, from, bytes, 0};
  return mill_cuda_upload_all(d, &piece, 1);
}

int mill_cuda_zero(mill_device *d, void *to, size_t bytes)
{
  CHECK_CUDA(cudaSetDevice(d->id));
  MILL_CHECK(mill_cuda_flush(d));
  if (bytes > 0)
    CHECK_CUDA(cudaMemsetAsync(to, 0, bytes, d->up));
  return MILL_OK;
}

int mill_cuda_after_uploads(mill_device *d, cudaStream_t stream)
{
  MILL_CHECK(mill_cuda_flush(d));
  CHECK_CUDA(cudaEventRecord(d->uploaded, d->up));
  CHECK_CUDA(cudaStreamWaitEvent(stream, d->uploaded, 0));
  return MILL_OK;
}

/* download n pieces through the pinned buffer d->back, as much at a time as it holds */
int mill_cuda_download_all(mill_device *d, const mill_upload *piece, int n)
{
  size_t done = 0; /* bytes of piece[begin] downloaded so far */
  CHECK_CUDA(cudaSetDevice(d->id));
  MILL_CHECK(mill_cuda_after_uploads(d, d->down));
  for (int begin = 0; begin < n;) {
    mill_upload part[MILL_CUDA_MAX_COPY];
    int n_part = 0;
    for (size_t at = 0; begin < n && at < MILL_CUDA_BACK_BYTES && n_part < MILL_CUDA_MAX_COPY;) {
      const size_t room = MILL_CUDA_BACK_BYTES - at, left = piece[begin].bytes - done;
      const size_t now = left < room ? left : room;
      if (now > 0)
        CHECK_CUDA(cudaMemcpyAsync(d->back + at, (const char *)piece[begin].from + done, now,
                                   cudaMemcpyDeviceToHost, d->down));
      part[n_part++] = (mill_upload){(char *)piece[begin].to + done, d->back + at, now, 0};
      at += now;
      done += now;
      if (done == piece[begin].bytes) {
        begin++;
        done = 0;
      }
    }
    CHECK_CUDA(cudaStreamSynchronize(d->down));
    for (int i = 0; i < n_part; i++)
      mill_host_copy(&part[i]);
  }
  return MILL_OK;
}

int mill_cuda_download(mill_device *d, void *to, const void *from, size_t bytes)
{
  const mill_upload piece = {to, from, bytes, 0};
  return mill_cuda_download_all(d, &piece, 1);
}

/** Returns cudaErrorMemoryAllocation if an allocation would take memory reserved for CUDA. */
static cudaError_t leave_reserve(size_t bytes)
{
  size_t n_free = 0, n_total = 0;
  if (bytes < LARGE_BYTES)
    return cudaSuccess;
  const cudaError_t status = cudaMemGetInfo(&n_free, &n_total);
  const size_t part = n_total / RESERVE_PART;
  const size_t reserve = part < RESERVE_BYTES ? part : RESERVE_BYTES;
  if (status != cudaSuccess || (bytes <= n_free && reserve <= n_free - bytes))
    return status;
  return cudaErrorMemoryAllocation;
}

/* allocate GPU memory, not zeroed; *out is NULL after a failure */
int mill_cuda_alloc(mill_device *d, size_t bytes, void **out)
{
  int err = MILL_OK;
  *out = NULL;
  TRY_CUDA(cudaSetDevice(d->id));
  /* CUDA refuses a copy across two allocations.  `follows` joins two copies if their destinations
   * are less than MILL_ARRAY_BYTES apart.  This padding keeps allocations farther apart. */
  bytes += MILL_ARRAY_BYTES;
  TRY_CUDA_AT("memory for a star", leave_reserve(bytes));
  TRY_CUDA_AT("memory for a star", cudaMalloc(out, bytes));
done:
  if (err)
    *out = NULL;
  return err;
}

void mill_cuda_bury(mill_device *d)
{
  /* wait for copies to the buried memory; the next GPU call reports a failure */
  if (d->n_grave > 0)
    (void)cudaStreamSynchronize(d->up);
  for (int i = 0; i < d->n_grave; i++)
    (void)cudaFree(d->grave[i]);
  d->n_grave = 0;
}

/* free GPU memory; while rounds run, leave it to mill_cuda_bury, since cudaFree waits for them */
void mill_cuda_release(mill_device *d, void *memory)
{
  if (!memory)
    return;
  (void)cudaSetDevice(d->id);
  /* start pending copies: some may go to this memory.  The next GPU call reports a failure. */
  (void)mill_cuda_flush(d);
  if (d->is_busy && MILL_GROW(&d->grave, &d->cap_grave, d->n_grave + 1) == MILL_OK) {
    d->grave[d->n_grave++] = memory;
  } else {
    (void)cudaStreamSynchronize(d->up); /* until these copies have ended */
    (void)cudaFree(memory);
  }
}
