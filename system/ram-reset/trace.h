#include "trace/trace-system_ram_reset.h"
