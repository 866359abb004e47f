/* SPDX-License-Identifier: BSD-3-Clause */
#include "io/files/lock_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "src/system/log.h"
#include "src/system/regular_file.h"
#include "src/system/status_process.h"
#include "src/system/thread.h"

enum {
  TEXT = 1024,
  MAX_JOB = 64,
  EMPTY_S = 2,    /* a lock file still empty after this time is stale */
  WATCH_BEATS = 3 /* a watched lock is stale after this many beats without a touch */
};

double mill_lock_beat_s = 10;

struct mill_lock_beat {
  char path[MILL_MAX_PATH], text[TEXT];
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int ends;               /* guarded by mutex */
  _Atomic double touched; /* time of the last touch (mill_boot_s, which counts suspension) */
  _Atomic int is_lost;
};

/* Holder of a lock; text "-": unknown. */
typedef struct holder {
  char host[256], job[MAX_JOB];
  char space[64]; /* PID namespace, since containers number processes separately */
  long pid;
  int restart;
  unsigned long long start; /* start time of the process, since pids are reused; 0: unknown */
} holder;

static int is_job_id(const char *text)
{
  return text && *text && strlen(text) < MAX_JOB && strspn(text, "0123456789_-") == strlen(text);
}

void mill_lock_job(char *out, size_t size)
{
  const char *job = getenv("SLURM_JOB_ID");
  if (is_job_id(job))
    snprintf(out, size, "%s", job);
  else
    snprintf(out, size, "pid%ld", (long)getpid());
}

int mill_lock_restart(void)
{
  const char *restart = getenv("SLURM_RESTART_COUNT");
  return restart ? atoi(restart) : 0;
}

static void self(holder *me)
{
  char state;
  const char *job = getenv("SLURM_JOB_ID");
  *me = (holder){.space = "-", .pid = (long)getpid(), .restart = mill_lock_restart()};
  mill_host_name(me->host, sizeof me->host);
  snprintf(me->job, sizeof me->job, "%s", is_job_id(job) ? job : "-");
  (void)mill_process_look(me->pid, &state, &me->start);
  (void)!readlink("/proc/self/ns/pid", me->space, sizeof me->space - 1);
}

/* Read an open lock file into out [TEXT]; returns its length, negative if unreadable. */
static ssize_t read_lock(int fd, char *out)
{
  const ssize_t n = fd < 0 ? -1 : read(fd, out, TEXT - 1);
  out[n > 0 ? n : 0] = '\0';
  return n;
}

static int open_lock(const char *path)
{
  return open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

enum verdict { LIVES, IS_GONE, WATCH };

/* Does the lock's holder still run?  WATCH: not known. */
static enum verdict judge(const holder *who, const holder *me, double age_s)
{
  char state;
  unsigned long long start = 0;
  const int is_near = strcmp(who->host, me->host) == 0 && strcmp(who->space, me->space) == 0;
  if (is_near && (!mill_process_alive(who->pid) ||
                  (mill_process_look(who->pid, &state, &start) && start != who->start)))
    return IS_GONE;
  const int is_earlier_start =
      strcmp(who->job, "-") != 0 && strcmp(who->job, me->job) == 0 && who->restart < me->restart;
  /* Such a holder may still run: a wrong clock makes a lock look old, or Slurm lost its host. */
  return age_s > MILL_LOCK_DEAD_S || is_earlier_start ? WATCH : LIVES;
}

/* Is the lock file touched or replaced within WATCH_BEATS?  NFS shows changes only at an open. */
static int is_touched(const char *path, const struct stat *before)
{
  const double end = mill_wall_s() + WATCH_BEATS * mill_lock_beat_s;
  int touched = 0;
  mill_log_info("%s exists: watching for %.0f s whether the job that made it still runs", path,
                WATCH_BEATS * mill_lock_beat_s);
  while (!touched && mill_wall_s() < end) {
    struct stat now;
    (void)usleep((useconds_t)(1e5 * mill_lock_beat_s)); /* us: a tenth of a beat */
    MILL_AT_END(mill_descriptor_close) const int fd = open_lock(path);
    touched = fd < 0 || fstat(fd, &now) != 0 || now.st_ino != before->st_ino ||
              now.st_mtim.tv_sec != before->st_mtim.tv_sec ||
              now.st_mtim.tv_nsec != before->st_mtim.tv_nsec;
  }
  return touched;
}

/* Remove another job's lock if it is stale; fail if its job runs.  MILL_OK: caller may retry. */
static int remove_stale(const char *path, const char *output, const holder *me)
{
  char text[TEXT];
  holder who = {.pid = 0};
  struct stat opened, named;
  MILL_AT_END(mill_descriptor_close) const int fd = open_lock(path);
  if (fd < 0 && errno == ENOENT)
    return MILL_OK;
  const ssize_t n = read_lock(fd, text);
  if (n < 0 || fstat(fd, &opened) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: the lock file of the output cannot be read: %s", path,
                      strerror(errno));
  const double age_s = difftime(time(NULL), opened.st_mtim.tv_sec);
  const int is_known =
      sscanf(text, "host %255s pid %ld job %63s restart %d start %llu space %63s", who.host,
             &who.pid, who.job, &who.restart, &who.start, who.space) == 6;
  if (n == 0 && age_s < EMPTY_S) {  /* its job is writing it, or was just killed */
    (void)usleep(EMPTY_S * 100000); /* us: a tenth of EMPTY_S */
    return MILL_OK;
  }
  if (!is_known && n > 0)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s is locked, and %s does not name the job: if no job writes this output, "
                      "remove the lock file and start again",
                      output, path);
  const enum verdict verdict = is_known ? judge(&who, me, age_s) : IS_GONE; /* empty too long */
  if (verdict == LIVES || (verdict == WATCH && is_touched(path, &opened)))
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s is being written by process %ld on host %s%s%s: wait for it to end, or, "
                      "if it no longer runs, remove %s and start again",
                      output, who.pid, who.host, strcmp(who.job, "-") ? ", Slurm job " : "",
                      strcmp(who.job, "-") ? who.job : "", path);
  /* several jobs may find the lock stale: flock lets only the first of them remove the file.  Where
   * flock does nothing, mill_lock_keep stops the other jobs */
  (void)flock(fd, LOCK_EX);
  if (lstat(path, &named) != 0 || opened.st_ino != named.st_ino || opened.st_dev != named.st_dev)
    return MILL_OK;
  if (unlink(path) != 0 && errno != ENOENT)
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s: this stale lock cannot be removed: %s; remove it yourself", path,
                      strerror(errno));
  mill_log_info("%s: taking over this lock, left by %s%s that no longer runs", path,
                is_known ? "a process on host " : "a job", who.host);
  return MILL_OK;
}

/* Is the lock still ours?  0: another job has it; 1 also if it is missing or unreadable. */
static int is_ours(const struct mill_lock_beat *beat)
{
  char text[TEXT];
  MILL_AT_END(mill_descriptor_close) const int fd = open_lock(beat->path);
  const ssize_t n = read_lock(fd, text);
  return n < 0 || strcmp(text, beat->text) == 0;
}

static void touch(struct mill_lock_beat *beat)
{
  if (!is_ours(beat))
    atomic_store(&beat->is_lost, 1);
  if (!atomic_load(&beat->is_lost))
    (void)utimensat(AT_FDCWD, beat->path, NULL, AT_SYMLINK_NOFOLLOW);
  atomic_store(&beat->touched, mill_boot_s());
}

static void *keep_touching(void *argument)
{
  struct mill_lock_beat *beat = argument;
  while (mill_cond_nap(&beat->changed, &beat->mutex, &beat->ends, mill_lock_beat_s))
    touch(beat);
  return NULL;
}

/* Write the holder to the new lock file fd, and start the thread that touches the file.  Closes fd;
 * a failure also removes the file. */
static int begin(int fd, const char *path, const holder *me, mill_lock *lock)
{
  int err = MILL_OK;
  MILL_OWNED struct mill_lock_beat *beat = NULL;
  MILL_TRY(MILL_ALLOC(1, &beat));
  snprintf(beat->path, sizeof beat->path, "%s", path);
  const int n =
      snprintf(beat->text, TEXT, "host %s\npid %ld\njob %s\nrestart %d\nstart %llu\nspace %s\n",
               me->host, me->pid, me->job, me->restart, me->start, me->space);
  if (write(fd, beat->text, (size_t)n) != n || fsync(fd) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s cannot be written: %s: make room or choose another output", path,
              strerror(errno));
  atomic_store(&beat->touched, mill_boot_s());
  pthread_mutex_init(&beat->mutex, NULL);
  int rc = mill_cond_init(&beat->changed);
  if (rc == 0)
    rc = mill_thread_start(&beat->thread, keep_touching, beat);
  if (rc != 0)
    MILL_FAIL(MILL_ERR_INTERNAL, "cannot start the thread that renews the lock %s: %s%s", path,
              strerror(rc), mill_memory_limit());
  memcpy(lock->path, beat->path, sizeof lock->path);
  lock->beat = beat;
  beat = NULL;
done:
  if (err != MILL_OK)
    unlink(path);
  close(fd);
  return err;
}

int mill_lock_take(const char *output, mill_lock *lock)
{
  char path[MILL_MAX_PATH];
  holder me;
  self(&me);
  if (strlen(output) + sizeof me.host + 64 > sizeof path) /* temporary names are longer */
    return MILL_ERROR(MILL_ERR_OUTPUT, "the output's path is too long; shorten it: %s", output);
  snprintf(path, sizeof path, "%s.lock", output);
  for (int i_try = 0; i_try < 20; i_try++) { /* other jobs may take and release it meanwhile */
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd >= 0)
      return begin(fd, path, &me, lock);
    if (errno != EEXIST)
      return MILL_ERROR(MILL_ERR_OUTPUT,
                        "%s cannot be created: %s: create the folder or make it writable, or "
                        "choose another output",
                        path, strerror(errno));
    MILL_CHECK(remove_stale(path, output, &me));
  }
  return MILL_ERROR(MILL_ERR_OUTPUT,
                    "%s: lock cannot be taken over: if no job writes the output, remove this lock",
                    path);
}

int mill_lock_keep(const mill_lock *lock)
{
  if (!lock->beat) /* the lock is not held */
    return MILL_OK;
  if (mill_boot_s() - atomic_load(&lock->beat->touched) > 2 * mill_lock_beat_s)
    touch(lock->beat); /* the machine or this process was suspended */
  if (atomic_load(&lock->beat->is_lost))
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s was taken over by another job, because this job was suspended or did not "
                      "touch the lock for long: this job stops writing",
                      lock->path);
  return MILL_OK;
}

void mill_lock_release(mill_lock *lock)
{
  struct mill_lock_beat *beat = lock->beat;
  if (!beat)
    return;
  mill_cond_end(&beat->changed, &beat->mutex, &beat->ends);
  pthread_join(beat->thread, NULL);
  pthread_mutex_destroy(&beat->mutex);
  pthread_cond_destroy(&beat->changed);
  if (is_ours(beat))
    unlink(beat->path);
  mill_free(beat);
  *lock = (mill_lock){.path = ""};
}

void mill_lock_remove_leftovers(const mill_lock *lock, const char *output)
{
  char folder[MILL_MAX_PATH], victim[2 * MILL_MAX_PATH];
  if (!lock->beat) /* the lock is not held */
    return;
  snprintf(folder, sizeof folder, "%s", output);
  const char *in = dirname(folder), *base = mill_base_name(output);
  const size_t n = strlen(base);
  DIR *dir = opendir(in);
  struct dirent *entry;
  while (dir && (entry = readdir(dir)) != NULL) {
    const char *file = entry->d_name, *end = file + n;
    if (strncmp(file, base, n) != 0 || strncmp(end, ".tmp-", 5) != 0)
      continue;
    /* after .tmp-: mill_lock_job's text, or in files of Python jobs process id and start time */
    if (!is_job_id(strncmp(end + 5, "pid", 3) == 0 ? end + 8 : end + 5))
      continue;
    snprintf(victim, sizeof victim, "%s/%s", in, file);
    unlink(victim);
  }
  if (dir)
    closedir(dir);
}

void mill_lock_tidy(const char *output)
{
  char path[MILL_MAX_PATH];
  mill_lock lock = {.path = ""};
  if (snprintf(path, sizeof path, "%s.lock", output) >= (int)sizeof path ||
      access(path, F_OK) != 0 || mill_lock_take(output, &lock) != MILL_OK)
    return;
  mill_lock_remove_leftovers(&lock, output);
  mill_lock_release(&lock);
}
