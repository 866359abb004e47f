/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/system/version.h"

#include "mill_revision.h"

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
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "gcc " __VERSION__;
#else
  return "unknown compiler";
#endif
}
