#include "io/files/lock_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "kernels/base/clock.h"
#include "src/system/status_process.h"
#include "src/system/thread.h"

enum { MAX_HOST = 256, MAX_JOB = 64, MAX_ID = 64 };

/* "-" where something is not known */
typedef struct holder {
  char host[MAX_HOST], job[MAX_JOB];
  long pid;
  int restart;              /* SLURM_RESTART_COUNT */
  unsigned long long start; /* of the process, ticks since its machine was booted; 0: unknown */
  char boot[MAX_ID];        /* that start of the machine */
  char pids[MAX_ID];        /* the space in which process numbers count: containers differ */
} holder;

static int is_job_id(const char *text)
{
  return text && *text && strlen(text) < MAX_JOB &&
         strspn(text, "0123456789_-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") ==
             strlen(text);
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
  char state = 0;
  memset(me, 0, sizeof *me);
  mill_host_name(me->host, sizeof me->host);
  me->pid = (long)getpid();
  const char *job = getenv("SLURM_JOB_ID");
  snprintf(me->job, sizeof me->job, "%s", is_job_id(job) ? job : "-");
  me->restart = mill_lock_restart();
  if (!mill_process_look(me->pid, &state, &me->start))
    me->start = 0;
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (!file || fscanf(file, "%63s", me->boot) != 1)
    snprintf(me->boot, sizeof me->boot, "-");
  if (file)
    fclose(file);
  const ssize_t n = readlink("/proc/self/ns/pid", me->pids, sizeof me->pids - 1);
  if (n <= 0)
    snprintf(me->pids, sizeof me->pids, "-");
}

/* 1 when the text names a holder */
static int parse(const char *text, holder *who)
{
  memset(who, 0, sizeof *who);
  if (sscanf(text, "host %255s pid %ld job %63s restart %d", who->host, &who->pid, who->job,
             &who->restart) != 4)
    return 0;
  const char *more = strstr(text, "\nstart ");
  if (!more ||
      sscanf(more, " start %llu boot %63s pids %63s", &who->start, who->boot, who->pids) != 3) {
    who->start = 0;
    snprintf(who->boot, sizeof who->boot, "-");
    snprintf(who->pids, sizeof who->pids, "-");
  }
  return 1;
}

static int both_known_and_differ(const char *a, const char *b)
{
  return strcmp(a, "-") != 0 && strcmp(b, "-") != 0 && strcmp(a, b) != 0;
}

/* Surely dead?  Of a process that this one cannot see, only a lock that no process has touched for
   long says so.  age_s: since it was touched. */
static int is_stale(const holder *who, const holder *me, double age_s)
{
  char state = 0;
  unsigned long long start = 0;
  const int has_beat = who->start != 0; /* written by a version that touches its lock */
  if (strcmp(who->job, "-") != 0 && strcmp(who->job, me->job) == 0 && who->restart < me->restart)
    return 1;
  if (strcmp(who->host, me->host) != 0 || who->pid <= 0)
    return has_beat && age_s > MILL_LOCK_DEAD_S;
  if (both_known_and_differ(who->boot, me->boot)) {
    /* the machine was started again since, unless another one has its name: a lock that was
       touched since this start is not of an earlier one */
    return age_s > mill_boot_s() || (has_beat && age_s > MILL_LOCK_DEAD_S);
  }
  if (both_known_and_differ(who->pids, me->pids))
    return has_beat && age_s > MILL_LOCK_DEAD_S;
  if (kill((pid_t)who->pid, 0) != 0 && errno == ESRCH)
    return 1;
  if (!mill_process_look(who->pid, &state, &start))
    return 0;
  /* A killed process whose parent has not asked for its end yet has a number still, but does
     nothing any more: a restart at once after a kill meets such ones.  And a number may have
     gone to another process since. */
  return state == 'Z' || state == 'X' || (who->start != 0 && who->start != start);
}

static int write_all(int fd, const char *text)
{
  for (size_t n = strlen(text), at = 0; at < n;) {
    const ssize_t n_put = write(fd, text + at, n - at);
    if (n_put < 0 && errno == EINTR)
      continue;
    if (n_put <= 0)
      return -1;
    at += (size_t)n_put;
  }
  return fsync(fd);
}

static double mtime_s(const struct stat *status)
{
  return (double)status->st_mtim.tv_sec + 1e-9 * (double)status->st_mtim.tv_nsec;
}

/* A name of this process beside the output, which its next lock holder clears away. */
static void own_name(const char *output, const char *what, const holder *me, char *out)
{
  snprintf(out, MILL_MAX_PATH, "%.*s.tmp-%s-%s-%ld", MILL_MAX_PATH - 400, output, what, me->host,
           me->pid);
}

/* Where the file system has no flock(): rename the stale lock that is open as fd, and should
   another's new one have been hit instead, put that back. */
static int move_away(const char *path, const char *output, const holder *me, int fd)
{
  char old[MILL_MAX_PATH];
  struct stat opened, moved;
  own_name(output, "stale", me, old);
  if (rename(path, old) != 0) {
    if (errno == ENOENT)
      return MILL_OK;
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s: stale lock cannot be removed: %s", path,
                      strerror(errno));
  }
  if (fstat(fd, &opened) == 0 && lstat(old, &moved) == 0 && opened.st_ino != moved.st_ino)
    (void)!link(old, path);
  unlink(old);
  return MILL_OK;
}

/* Look at somebody's lock: *removed when it was stale and is gone now. */
static int examine(const char *path, const char *output, const holder *me, double fs_now_s,
                   int *removed)
{
  int err = MILL_OK;
  char text[1024] = "";
  holder who;
  struct stat opened, named;
  *removed = 0;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) {
    *removed = 1;
    goto done;
  }
  if (fd < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: the lock file of the output cannot be read: %s", path,
              strerror(errno));
  const ssize_t n = read(fd, text, sizeof text - 1);
  const double age_s = fstat(fd, &opened) == 0 ? fs_now_s - mtime_s(&opened) : 0.0;
  const int is_known = n >= 0 && parse(text, &who);
  if (!is_known && !(n == 0 && age_s > MILL_LOCK_DEAD_S))
    MILL_FAIL(
        MILL_ERR_OUTPUT,
        "%s is locked, and %s does not say by whom: if no job writes this output, remove that "
        "file and start again",
        output, path);
  if (is_known && !is_stale(&who, me, age_s))
    MILL_FAIL(MILL_ERR_OUTPUT,
              "%s is being written by process %ld on host %s%s%s: wait for it to end, or, if it no "
              "longer runs, remove %s and start again",
              output, who.pid, who.host, strcmp(who.job, "-") ? ", Slurm job " : "",
              strcmp(who.job, "-") ? who.job : "", path);
  /* of several processes that find it stale one may remove it, and only this
     very file: another may have put its own lock there meanwhile */
  if (flock(fd, LOCK_EX) != 0)
    MILL_TRY(move_away(path, output, me, fd));
  else if (fstat(fd, &opened) == 0 && lstat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev && unlink(path) != 0 && errno != ENOENT)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: stale lock cannot be removed: %s", path, strerror(errno));
  *removed = 1;
done:
  if (fd >= 0)
    close(fd);
  return err;
}

/* The lock with its text under a name of its own, which is then linked to the right one: a lock
   is never there without its text, whenever its maker is killed.  Gives what it became. */
static int write_draft(const char *draft, const holder *me, char *text, struct stat *status)
{
  int failed = 0;
  const int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0)
    return MILL_ERROR(
        MILL_ERR_OUTPUT,
        "%s cannot be created: %s: create the folder or make it writable, or choose another "
        "output",
        draft, strerror(errno));
  snprintf(text, MILL_LOCK_BYTES,
           "host %s\npid %ld\njob %s\nrestart %d\nstart %llu\nboot %s\npids %s\n", me->host,
           me->pid, me->job, me->restart, me->start, me->boot, me->pids);
  if (write_all(fd, text) != 0 || fstat(fd, status) != 0)
    failed = errno;
  if (close(fd) != 0 && failed == 0)
    failed = errno;
  if (failed) {
    unlink(draft);
    return MILL_ERROR(MILL_ERR_OUTPUT,
                      "%s cannot be written: %s: make room or choose another output", draft,
                      strerror(failed));
  }
  return MILL_OK;
}

/* Give the draft its name; *taken 0: another lock is there. */
static int take_name(const char *draft, const char *path, int *taken)
{
  *taken = link(draft, path) == 0;
  /* without its draft: the job that has just taken the lock has cleared it away */
  if (*taken || errno == EEXIST || errno == ENOENT)
    return MILL_OK;
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK)
    return MILL_ERROR(
        MILL_ERR_OUTPUT,
        "%s cannot be created: %s: create the folder or make it writable, or choose another "
        "output",
        path, strerror(errno));
  /* a file system without links: an empty file takes the name, then the draft replaces it */
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0 && errno == EEXIST)
    return MILL_OK;
  if (fd < 0 || close(fd) != 0 || rename(draft, path) != 0)
    return MILL_ERROR(MILL_ERR_OUTPUT, "%s cannot be created: %s", path, strerror(errno));
  *taken = 1;
  return MILL_OK;
}

int mill_lock_take(const char *output, mill_lock *lock)
{
  int err = MILL_OK;
  int taken = 0;
  char path[MILL_MAX_PATH], draft[MILL_MAX_PATH] = "", text[MILL_LOCK_BYTES] = "";
  struct stat status;
  holder me;
  self(&me);
  if (strlen(output) + sizeof me.host + 64 > sizeof path)
    MILL_FAIL(MILL_ERR_OUTPUT, "the path of the output is too long: %s", output);
  snprintf(path, sizeof path, "%s.lock", output);
  /* a few rounds, for others may take and leave it meanwhile */
  for (int i_try = 0; i_try < 10 && !taken; i_try++) {
    int removed;
    /* the job that has the lock may clear drafts away, so there is a new one for every try */
    own_name(output, "lock", &me, draft);
    MILL_TRY(write_draft(draft, &me, text, &status));
    MILL_TRY(take_name(draft, path, &taken));
    if (!taken)
      MILL_TRY(examine(path, output, &me, mtime_s(&status), &removed));
  }
  if (!taken)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: other jobs keep taking the lock of this output", path);
  memcpy(lock->path, path, sizeof path);
  memcpy(lock->text, text, sizeof text);
  lock->touched_s = mill_boot_s();
done:
  if (draft[0])
    unlink(draft); /* or it has taken the name */
  return err;
}

/* 1 ours, 0 another's, -1 not to be seen.  Numbers of files come again, and not all file systems
   keep them. */
static int is_ours(const mill_lock *lock)
{
  char text[MILL_LOCK_BYTES] = "";
  const int fd = open(lock->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0)
    return -1;
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n < 0)
    return -1;
  return strcmp(text, lock->text) == 0;
}

int mill_lock_keep(mill_lock *lock)
{
  if (!lock->path[0] || (!lock->is_lost && mill_boot_s() - lock->touched_s < MILL_LOCK_BEAT_S))
    return MILL_OK;
  lock->touched_s = mill_boot_s();
  /* one that was taken away by hand, or cannot be seen now, is no other job's */
  if (is_ours(lock) == 0)
    lock->is_lost = 1;
  if (lock->is_lost)
    return MILL_ERROR(
        MILL_ERR_OUTPUT,
        "%s was taken over by another job, as this one had not touched it for long (was it "
        "suspended?): this one writes no more",
        lock->path);
  /* a file system that does not take it only makes the lock look old to other hosts */
  (void)utimensat(AT_FDCWD, lock->path, NULL, AT_SYMLINK_NOFOLLOW);
  return MILL_OK;
}

struct mill_lock_keeper {
  mill_lock *lock;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int ends; /* guarded by mutex */
};

static void *keep_touching(void *argument)
{
  mill_lock_keeper *keeper = argument;
  do
    (void)mill_lock_keep(keeper->lock); /* a lock that is lost stays so, for its owner to see */
  while (mill_cond_nap(&keeper->changed, &keeper->mutex, &keeper->ends, MILL_LOCK_BEAT_S));
  return NULL;
}

int mill_lock_keeper_start(mill_lock *lock, mill_lock_keeper **out)
{
  int err = MILL_OK, rc;
  mill_lock_keeper *keeper = NULL;
  *out = NULL;
  if (!lock->path[0])
    goto done;
  MILL_TRY(MILL_ALLOC(1, &keeper));
  keeper->lock = lock;
  pthread_mutex_init(&keeper->mutex, NULL);
  rc = mill_cond_init(&keeper->changed);
  if (rc == 0)
    rc = mill_thread_start(&keeper->thread, keep_touching, keeper);
  if (rc != 0)
    MILL_FAIL(MILL_ERR_INTERNAL, "no thread that keeps %s: %s", lock->path, strerror(rc));
  *out = keeper;
  keeper = NULL;
done:
  mill_free(keeper);
  return err;
}

void mill_lock_keeper_stop(mill_lock_keeper *keeper)
{
  if (!keeper)
    return;
  mill_cond_end(&keeper->changed, &keeper->mutex, &keeper->ends);
  pthread_join(keeper->thread, NULL);
  pthread_mutex_destroy(&keeper->mutex);
  pthread_cond_destroy(&keeper->changed);
  mill_free(keeper);
}

void mill_lock_release(mill_lock *lock)
{
  if (lock->path[0] && is_ours(lock) == 1)
    unlink(lock->path);
  lock->path[0] = '\0';
}

void mill_lock_remove_leftovers(const mill_lock *lock, const char *output)
{
  char folder[MILL_MAX_PATH], name[MILL_MAX_PATH], victim[2 * MILL_MAX_PATH];
  if (!lock->path[0])
    return;
  snprintf(folder, sizeof folder, "%s", output);
  snprintf(name, sizeof name, "%s", output);
  const char *in = dirname(folder), *base = basename(name);
  const size_t n = strlen(base);
  DIR *dir = opendir(in);
  struct dirent *entry;
  while (dir && (entry = readdir(dir)) != NULL)
    if (strncmp(entry->d_name, base, n) == 0 && strncmp(entry->d_name + n, ".tmp-", 5) == 0) {
      snprintf(victim, sizeof victim, "%s/%s", in, entry->d_name);
      unlink(victim);
    }
  if (dir)
    closedir(dir);
}
