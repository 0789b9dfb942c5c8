#include "exec/execute.h"
