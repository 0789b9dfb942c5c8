#include "workloads/units.h"
