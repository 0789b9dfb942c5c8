#include "sim/metrics.h"
