// SPDX-License-Identifier: BSD-3-Clause
// Python with ThreadSanitizer's runtime, which must be in a process before libstarmill is loaded.
#include <Python.h>

int main(int argc, char **argv)
{
  return Py_BytesMain(argc, argv);
}
