#include "io/lock_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/error.h"

enum { MAX_HOST = 256, MAX_JOB = 64 };

typedef struct holder {
  char host[MAX_HOST], job[MAX_JOB];
  long pid;
  int restart; /* SLURM_RESTART_COUNT */
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

static void self(holder *me)
{
  memset(me, 0, sizeof *me);
  if (gethostname(me->host, sizeof me->host - 1) != 0 || !me->host[0])
    snprintf(me->host, sizeof me->host, "unknown");
  me->pid = (long)getpid();
  const char *job = getenv("SLURM_JOB_ID"), *restart = getenv("SLURM_RESTART_COUNT");
  snprintf(me->job, sizeof me->job, "%s", is_job_id(job) ? job : "-");
  me->restart = restart ? atoi(restart) : 0;
}

/* 1 when the text names a holder */
static int parse(const char *text, holder *who)
{
  memset(who, 0, sizeof *who);
  return sscanf(text, "host %255s pid %ld job %63s restart %d", who->host, &who->pid, who->job,
                &who->restart) == 4;
}

/* A killed process whose parent has not asked for its end yet has a number still, but does
   nothing any more: a restart at once after a kill meets such ones. */
static int is_zombie(long pid)
{
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  FILE *file = fopen(path, "r");
  if (!file)
    return 0;
  const size_t n = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[n] = '\0';
  /* "pid (name) state ...", and the name may hold anything */
  const char *state = strrchr(text, ')');
  return state && state[1] == ' ' && (state[2] == 'Z' || state[2] == 'X');
}

/* Surely dead?  A process of another host may be alive although we see nothing of it. */
static int is_stale(const holder *who, const holder *me)
{
  if (strcmp(who->job, "-") != 0 && strcmp(who->job, me->job) == 0 && who->restart < me->restart)
    return 1;
  if (strcmp(who->host, me->host) != 0 || who->pid <= 0)
    return 0;
  return (kill((pid_t)who->pid, 0) != 0 && errno == ESRCH) || is_zombie(who->pid);
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

/* Look at somebody's lock: *removed when it was stale and is gone now. */
static int examine(const char *path, const char *output, const holder *me, int *removed)
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
  if (n < 0 || !parse(text, &who))
    MILL_FAIL(
        MILL_ERR_OUTPUT,
        "%s is locked, and %s does not say by whom: if no job writes this output, remove that "
        "file and start again",
        output, path);
  if (!is_stale(&who, me))
    MILL_FAIL(MILL_ERR_OUTPUT,
              "%s is being written by process %ld on host %s%s%s: wait for it to end, or, if it no "
              "longer runs, remove %s and start again",
              output, who.pid, who.host, strcmp(who.job, "-") ? ", Slurm job " : "",
              strcmp(who.job, "-") ? who.job : "", path);
  /* of several processes that find it stale one may remove it, and only this
     very file: another may have put its own lock there meanwhile */
  if (flock(fd, LOCK_EX) != 0)
    MILL_FAIL(
        MILL_ERR_OUTPUT,
        "%s: left by a process that is gone, but this file system has no locks to take it over "
        "safely (%s): remove it and start again",
        path, strerror(errno));
  if (fstat(fd, &opened) == 0 && lstat(path, &named) == 0 && opened.st_ino == named.st_ino &&
      opened.st_dev == named.st_dev && unlink(path) != 0 && errno != ENOENT)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: stale lock cannot be removed: %s", path, strerror(errno));
  *removed = 1;
done:
  if (fd >= 0)
    close(fd);
  return err;
}

int mill_lock_take(const char *output, mill_lock *lock)
{
  int err = MILL_OK;
  int fd = -1;
  char path[MILL_MAX_PATH], text[512];
  holder me;
  self(&me);
  if (snprintf(path, sizeof path, "%s.lock", output) >= (int)sizeof path)
    MILL_FAIL(MILL_ERR_OUTPUT, "the path of the output is too long: %s", output);
  /* a few rounds, for others may take and leave it meanwhile */
  for (int i_try = 0; i_try < 10 && fd < 0; i_try++) {
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno != EEXIST)
      MILL_FAIL(
          MILL_ERR_OUTPUT,
          "%s cannot be created: %s: create the folder or make it writable, or choose another "
          "output",
          path, strerror(errno));
    int removed;
    if (fd < 0)
      MILL_TRY(examine(path, output, &me, &removed));
  }
  if (fd < 0)
    MILL_FAIL(MILL_ERR_OUTPUT, "%s: other jobs keep taking the lock of this output", path);
  snprintf(text, sizeof text, "host %s\npid %ld\njob %s\nrestart %d\n", me.host, me.pid, me.job,
           me.restart);
  struct stat status;
  if (write_all(fd, text) != 0 || fstat(fd, &status) != 0) {
    const int why = errno;
    unlink(path);
    MILL_FAIL(MILL_ERR_OUTPUT, "%s cannot be written: %s: make room or choose another output", path,
              strerror(why));
  }
  memcpy(lock->path, path, sizeof path);
  lock->device = status.st_dev;
  lock->inode = status.st_ino;
done:
  if (fd >= 0)
    close(fd);
  return err;
}

void mill_lock_release(mill_lock *lock)
{
  struct stat status;
  if (lock->path[0] && lstat(lock->path, &status) == 0 && status.st_dev == lock->device &&
      status.st_ino == lock->inode)
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
