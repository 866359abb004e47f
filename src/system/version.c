/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/version.h"

#include "mill_revision.h"

#if defined(__clang__)
#define MILL_COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define MILL_COMPILER "gcc " __VERSION__
#else
#define MILL_COMPILER "unknown compiler"
#endif

const char *mill_version(void)
{
  return MILL_VERSION;
}

const char *mill_version_revision(void)
{
  return MILL_REVISION;
}

const char *mill_version_compiler(void)
{
  return MILL_COMPILER;
}
