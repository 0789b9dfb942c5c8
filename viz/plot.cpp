#include "viz/plot.h"
