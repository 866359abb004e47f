/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* mkostemp */

#include "io/fits/gunzip.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <zlib.h>

#include "kernels/base/memory.h"
#include "kernels/base/clock.h"
#include "src/system/log.h"
#include "src/system/stop_signal.h"

enum { IO_BYTES = 1 << 18 };
/* longest wait for room (the watchdog stops a run after 600 s), and pauses between tries */
static const double WAIT_S = 300.0, FIRST_PAUSE_S = 0.1, MAX_PAUSE_S = 5.0;

static _Thread_local int n_held; /* number of unpacked files that this thread has open */

typedef struct unpacker {
  const char *path, *scratch;
  int in, out;
  int no_room;   /* errno of the first failed write; later bytes are only counted */
  int64_t limit; /* most bytes unpacked */
  int64_t size;  /* bytes unpacked so far, written or counted */
  unsigned char *in_buffer, *out_buffer; /* [IO_BYTES] */
} unpacker;

static void give_room_back(unpacker *u)
{
  if (u->out >= 0)
    close(u->out);
  u->out = -1;
}

/* Write n unpacked bytes; if the folder is full, close the file and only count the room needed. */
static int write_out(unpacker *u, size_t n)
{
  u->size += (int64_t)n;
  if (u->size > u->limit)
    return MILL_ERROR(
        MILL_ERR_INPUT,
        "%s: unpacks to more than the limit of %lld MiB; gunzip it, or raise gzip_limit_mib",
        u->path, (long long)(u->limit >> 20));
  for (size_t done_bytes = 0; done_bytes < n && u->no_room == 0;) {
    const ssize_t put = write(u->out, u->out_buffer + done_bytes, n - done_bytes);
    if (put < 0 && errno == EINTR)
      continue;
    if (put <= 0) {
      u->no_room = put < 0 ? errno : ENOSPC;
      give_room_back(u); /* at once, since other threads may need the room */
    } else {
      done_bytes += (size_t)put;
    }
  }
  return MILL_OK;
}

/* Read the next input bytes for z; avail_in 0: end of file. */
static int refill(unpacker *u, z_stream *z)
{
  ssize_t got;
  do
    got = read(u->in, u->in_buffer, IO_BYTES);
  while (got < 0 && errno == EINTR);
  if (got < 0)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: cannot be read: %s", u->path, strerror(errno));
  z->next_in = u->in_buffer;
  z->avail_in = (uInt)got;
  return MILL_OK;
}

/* Unpack all gzip members of the input, one after another, as gunzip does. */
static int inflate_members(unpacker *u, z_stream *z)
{
  for (;;) {
    if (z->avail_in == 0) {
      MILL_CHECK(refill(u, z));
      if (z->avail_in == 0)
        return MILL_ERROR(
            MILL_ERR_INPUT,
            "%s: the gzip stream ends too early; the file is truncated: fetch it again", u->path);
    }
    z->next_out = u->out_buffer;
    z->avail_out = IO_BYTES;
    const int status = inflate(z, Z_NO_FLUSH); /* Z_BUF_ERROR: zlib needs more input */
    if (status == Z_MEM_ERROR)
      return MILL_ERROR(MILL_ERR_MEMORY, "%s: no memory to unpack it", u->path);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      return MILL_ERROR(MILL_ERR_INPUT, "%s: the gzip stream is damaged (%s): make the file again",
                        u->path, z->msg ? z->msg : "no reason given");
    MILL_CHECK(write_out(u, IO_BYTES - z->avail_out));
    if (status != Z_STREAM_END)
      continue;
    /* zeros may pad the last member; anything else begins a new member */
    do {
      while (z->avail_in > 0 && *z->next_in == 0) {
        z->next_in++;
        z->avail_in--;
      }
      if (z->avail_in > 0)
        break;
      MILL_CHECK(refill(u, z));
    } while (z->avail_in > 0);
    if (z->avail_in == 0)
      return MILL_OK;
    if (inflateReset(z) != Z_OK)
      return MILL_ERROR(MILL_ERR_INTERNAL, "%s: zlib cannot go on; gunzip the file", u->path);
  }
}

/* Create the temporary file and remove its name at once, so that it vanishes with the process. */
static int open_unnamed(unpacker *u)
{
  MILL_OWNED char *name = NULL;
  const size_t name_bytes = strlen(u->scratch) + 32;
  MILL_CHECK(MILL_ALLOC(name_bytes, &name));
  snprintf(name, name_bytes, "%s/starmill-XXXXXX", u->scratch);
  u->out = mkostemp(name, O_CLOEXEC);
  if (u->out >= 0)
    unlink(name);
  else if (errno == ENOSPC || errno == EDQUOT)
    u->no_room = errno; /* the bytes are then counted, not written */
  else
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "scratch folder %s cannot be written (%s), so %s cannot be unpacked; set "
                      "scratch or TMPDIR to a writable folder, or gunzip the input",
                      u->scratch, strerror(errno), u->path);
  return MILL_OK;
}

/* Unpack the whole file once; set size, and no_room if the folder is full. */
static int unpack_once(unpacker *u)
{
  z_stream z = {0};
  u->no_room = 0;
  u->size = 0;
  if (lseek(u->in, 0, SEEK_SET) != 0)
    return MILL_ERROR(MILL_ERR_INPUT, "%s: cannot be read: %s", u->path, strerror(errno));
  MILL_CHECK(open_unnamed(u));
  if (inflateInit2(&z, 15 + 16) != Z_OK) /* 16: with a gzip header */
    return MILL_ERROR(MILL_ERR_MEMORY, "%s: zlib has no memory to unpack it", u->path);
  const int code = inflate_members(u, &z);
  inflateEnd(&z);
  return code;
}

/* Free bytes of the folder; infinite if unknown. */
static double free_bytes(const char *folder)
{
  struct statvfs s;
  return statvfs(folder, &s) == 0 ? (double)s.f_bavail * (double)s.f_frsize : INFINITY;
}

static int fail_for_room(const unpacker *u)
{
  const double mib = 1048576.0, there = free_bytes(u->scratch);
  char room[64] = "";
  if (isfinite(there))
    snprintf(room, sizeof room, ", %.1f MiB are free", there / mib);
  return MILL_ERROR(MILL_ERR_INPUT,
                    "%s: needs %.1f MiB unpacked, which the scratch folder %s cannot hold (%s%s); "
                    "make room, set scratch (or TMPDIR) to another folder, or gunzip the file",
                    u->path, (double)u->size / mib, u->scratch, strerror(u->no_room), room);
}

static void sleep_s(double s)
{
  const struct timespec t = {(time_t)s, (long)(1e9 * (s - floor(s)))};
  nanosleep(&t, NULL);
}

/* Take a shared lock on the folder, which tells others that this thread has a file there.  Waits
 * while another thread holds the exclusive lock. */
static void lock_shared(int lock, double end_s)
{
  while (lock >= 0 && flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK && n_held == 0 &&
         mill_wall_s() < end_s && mill_stop_reason() == MILL_STOP_NONE)
    sleep_s(FIRST_PAUSE_S);
}

/* Unlock the folder, and wait until it may have room.  Fail if this thread has a file there
 * (n_held): two such threads would wait for each other.  Set *is_alone to 1 if the folder is now
 * locked exclusively, so no other thread or rank has a file there.  A later call then fails. */
static int wait_for_room(const unpacker *u, int lock, double end_s, double *pause_s, int *is_alone)
{
  const int can_wait =
      lock >= 0 && n_held == 0 && (u->no_room == ENOSPC || u->no_room == EDQUOT) && !*is_alone;
  if (!can_wait)
    return fail_for_room(u);
  flock(lock, LOCK_UN);
  for (int is_first = 1;; is_first = 0) {
    if (mill_stop_reason() != MILL_STOP_NONE)
      return MILL_ERROR(MILL_ERR_STOPPED,
                        "%s: stopped while waiting for room in the scratch folder", u->path);
    *is_alone = flock(lock, LOCK_EX | LOCK_NB) == 0;
    const int has_room = free_bytes(u->scratch) >= (double)u->size;
    if (*is_alone && has_room)
      return MILL_OK;
    if (*is_alone || mill_wall_s() > end_s)
      return fail_for_room(u);
    if (has_room && !is_first) /* at first, room may be what this thread's deleted file left */
      return MILL_OK;
    sleep_s(*pause_s);
    *pause_s = fmin(1.5 * *pause_s, MAX_PAUSE_S);
  }
}

int mill_gunzip(const char *path, int in, int64_t limit, const char *scratch, mill_gunzipped *out)
{
  int err = MILL_OK, is_alone = 0;
  double pause_s = FIRST_PAUSE_S;
  const double end_s = mill_wall_s() + WAIT_S;
  unpacker u = {.path = path, .in = in, .out = -1, .limit = limit};
  *out = (mill_gunzipped){-1, -1};
  u.scratch = scratch && *scratch ? scratch : getenv("TMPDIR");
  if (!u.scratch || !*u.scratch)
    u.scratch = "/tmp";
  MILL_TRY(mill_alloc_raw(IO_BYTES, 1, (void **)&u.in_buffer));
  MILL_TRY(mill_alloc_raw(IO_BYTES, 1, (void **)&u.out_buffer));
  /* without file locks threads do not wait for room */
  out->lock = open(u.scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  lock_shared(out->lock, end_s);
  MILL_TRY(unpack_once(&u));
  for (int is_first = 1; u.no_room != 0; is_first = 0) {
    MILL_TRY(wait_for_room(&u, out->lock, end_s, &pause_s, &is_alone));
    if (is_first)
      mill_log_info(
          "%s: waited for room in the scratch folder %s, which other threads or ranks had filled",
          path, u.scratch);
    if (!is_alone) /* wait_for_room has unlocked the folder */
      lock_shared(out->lock, end_s);
    MILL_TRY(unpack_once(&u));
  }
  lock_shared(out->lock, end_s); /* an exclusive lock becomes shared */
  out->fd = u.out;
  u.out = -1; /* out owns the file now */
  n_held++;   /* a thread that holds a file does not wait for room */
done:
  give_room_back(&u);
  if (err != MILL_OK && out->lock >= 0) {
    close(out->lock);
    out->lock = -1;
  }
  MILL_FREE(u.in_buffer, u.out_buffer);
  return err;
}

void mill_gunzip_close(mill_gunzipped *file)
{
  if (file->fd < 0)
    return;
  close(file->fd);
  if (file->lock >= 0)
    close(file->lock);
  *file = (mill_gunzipped){-1, -1};
  n_held--;
}
