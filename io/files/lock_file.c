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
#include <unistd.h>

#include "kernels/base/error.h"
#include "kernels/base/clock.h"
#include "src/system/status_process.h"
#include "src/system/thread.h"

enum { MAX_HOST = 256, MAX_JOB = 64 };

typedef struct holder {
  char host[MAX_HOST], job[MAX_JOB]; /* job of Slurm; "-": none */
  long pid;
  int restart;              /* SLURM_RESTART_COUNT */
  unsigned long long start; /* of the process, ticks since its machine was booted; 0: unknown */
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
  const char *job = getenv("SLURM_JOB_ID");
  memset(me, 0, sizeof *me);
  mill_host_name(me->host, sizeof me->host);
  snprintf(me->job, sizeof me->job, "%s", is_job_id(job) ? job : "-");
  me->pid = (long)getpid();
  me->restart = mill_lock_restart();
  if (!mill_process_look(me->pid, &state, &me->start))
    me->start = 0;
}

/* 1 when the text names a holder; its start may be unknown */
static int parse(const char *text, holder *who)
{
  memset(who, 0, sizeof *who);
  return sscanf(text, "host %255s pid %ld job %63s restart %d start %llu", who->host, &who->pid,
                who->job, &who->restart, &who->start) >= 4;
}

/* Surely dead?  Of a process on another host only a lock that was not touched for long says so.
   age_s: since it was touched. */
static int is_stale(const holder *who, const holder *me, double age_s)
{
  char state = 0;
  unsigned long long start = 0;
  if (strcmp(who->job, "-") != 0 && strcmp(who->job, me->job) == 0 && who->restart < me->restart)
    return 1;
  if (strcmp(who->host, me->host) != 0 || who->pid <= 0)
    return age_s > MILL_LOCK_DEAD_S;
  if (kill((pid_t)who->pid, 0) != 0 && errno == ESRCH)
    return 1;
  if (!mill_process_look(who->pid, &state, &start))
    return 0;
  /* A killed process has a number until its parent asks for its end: a restart at once after a
     kill meets such ones.  And a number may have gone to another process since, also because the
     machine was booted. */
  return state == 'Z' || state == 'X' || (who->start != 0 && who->start != start);
}

/* Look at another's lock, and remove it when it is stale. */
static int examine(const char *path, const char *output, const holder *me)
{
  int err = MILL_OK;
  char text[MILL_LOCK_BYTES] = "";
  holder who;
  struct stat opened, named;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT)
    goto done;
  if (fd < 0 || fstat(fd, &opened) != 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: the lock file of the output cannot be read: %s", path,
              strerror(errno));
  const ssize_t n = read(fd, text, sizeof text - 1);
  const double age_s = mill_unix_s() - (double)opened.st_mtim.tv_sec;
  const int is_known = n >= 0 && parse(text, &who);
  /* its maker writes the text at once, or was killed just then */
  if (!is_known && !(n == 0 && age_s > 2 * MILL_LOCK_BEAT_S))
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
  /* of several processes that find it stale one may remove it, and only this very file: another
     may have put its own lock there meanwhile */
  (void)flock(fd, LOCK_EX); /* not all file systems have it; what is left then is a moment */
  if (lstat(path, &named) == 0 && opened.st_ino == named.st_ino && opened.st_dev == named.st_dev &&
      unlink(path) != 0 && errno != ENOENT)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: stale lock cannot be removed: %s", path, strerror(errno));
done:
  if (fd >= 0)
    close(fd);
  return err;
}

/* Make the lock, unless another is there: *taken 0. */
static int make_lock(const char *path, const char *text, int *taken)
{
  int err = MILL_OK;
  const ssize_t n = (ssize_t)strlen(text);
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  *taken = fd >= 0;
  if (fd < 0 && errno != EEXIST)
    MILL_FAIL(MILL_ERR_OUTPUT,
              "%s cannot be created: %s: create the folder or make it writable, or choose another "
              "output",
              path, strerror(errno));
  if (fd >= 0 && (write(fd, text, (size_t)n) != n || fsync(fd) != 0)) {
    const int failed = errno;
    unlink(path);
    MILL_FAIL(MILL_ERR_OUTPUT, "%s cannot be written: %s: make room or choose another output", path,
              strerror(failed));
  }
done:
  if (fd >= 0)
    close(fd);
  return err;
}

int mill_lock_take(const char *output, mill_lock *lock)
{
  int err = MILL_OK;
  int taken = 0;
  char path[MILL_MAX_PATH];
  holder me;
  self(&me);
  if (strlen(output) + sizeof me.host + 64 > sizeof path)
    MILL_FAIL(MILL_ERR_OUTPUT, "the path of the output is too long: %s", output);
  snprintf(path, sizeof path, "%s.lock", output);
  snprintf(lock->text, sizeof lock->text, "host %s\npid %ld\njob %s\nrestart %d\nstart %llu\n",
           me.host, me.pid, me.job, me.restart, me.start);
  /* a few rounds, for others may take and leave it meanwhile */
  for (int i_try = 0; i_try < 10 && !taken; i_try++) {
    MILL_TRY(make_lock(path, lock->text, &taken));
    if (!taken)
      MILL_TRY(examine(path, output, &me));
  }
  if (!taken)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: other jobs keep taking the lock of this output", path);
  memcpy(lock->path, path, sizeof path);
  lock->touched_s = mill_boot_s();
done:
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
  int err = MILL_OK;
  if (!lock->path[0] || (!lock->is_lost && mill_boot_s() - lock->touched_s < MILL_LOCK_BEAT_S))
    goto done;
  lock->touched_s = mill_boot_s();
  /* one that was taken away by hand, or cannot be seen now, is not another's */
  if (is_ours(lock) == 0)
    lock->is_lost = 1;
  if (lock->is_lost)
    MILL_FAIL(MILL_ERR_OUTPUT,
              "%s was taken over by another job, as this one had not touched it for long (was it "
              "suspended?): this one writes no more",
              lock->path);
  /* a file system that does not take it only makes the lock look old to other hosts */
  (void)utimensat(AT_FDCWD, lock->path, NULL, AT_SYMLINK_NOFOLLOW);
done:
  return err;
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
  pthread_mutex_lock(&keeper->mutex);
  keeper->ends = 1;
  pthread_cond_signal(&keeper->changed);
  pthread_mutex_unlock(&keeper->mutex);
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
