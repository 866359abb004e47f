#include "src/ranks/usual_rate.h"

#include "kernels/data/settings.h"

double mill_usual_core_rate(int optimizer)
{
  switch (optimizer) {
  case MILL_OPT_NELDER_MEAD:
    return 40.0;
  default: /* hybrid and levenberg-marquardt are the same within 2 % */
    return 127.0;
  }
}

double mill_usual_gpu_rate(void)
{
  return 10000.0;
}
