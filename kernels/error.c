#include "kernels/error.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char message[1024];
static _Thread_local char place[128];

static const struct {
  const char *text;
  int exit_status;
} table[] = {
#define ROW(code, exit_status, text) {text, exit_status},
    MILL_ERROR_LIST(ROW)
#undef ROW
};

const char *mill_error_text(int code)
{
  return code >= 0 && code < MILL_N_ERROR ? table[code].text : "unknown error";
}

int mill_error_exit_status(int code)
{
  return code >= 0 && code < MILL_N_ERROR ? table[code].exit_status : 70;
}

int mill_error_set(int code, const char *file, int line, const char *format, ...)
{
  /* the message may quote the one it replaces, so it is built aside */
  char text[sizeof message];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  memcpy(message, text, sizeof message);
  const char *slash = strrchr(file, '/');
  snprintf(place, sizeof place, "%s:%d", slash ? slash + 1 : file, line);
  return code;
}

const char *mill_error_message(void)
{
  return message;
}

const char *mill_error_place(void)
{
  return place;
}

void mill_error_clear(void)
{
  message[0] = '\0';
  place[0] = '\0';
}

int mill_alloc_bytes(size_t n, size_t size, void **out)
{
  *out = NULL;
  if (size != 0 && n > (SIZE_MAX - 64) / size)
    return mill_error_set(MILL_ERR_MEMORY, __FILE__, __LINE__,
                          "%zu elements of %zu bytes are too many", n, size);
  size_t bytes = n * size;
  bytes = bytes < 64 ? 64 : (bytes + 63) / 64 * 64;
  void *p = aligned_alloc(64, bytes);
  if (!p)
    return mill_error_set(MILL_ERR_MEMORY, __FILE__, __LINE__, "no memory for %zu bytes", bytes);
  memset(p, 0, bytes);
  *out = p;
  return MILL_OK;
}

void mill_free(void *p)
{
  free(p);
}
