// Marks functions that nvcc compiles for the host and for the device.
#pragma once

#if defined(__CUDACC__)
#define PW_HOST_AND_DEVICE __host__ __device__
#else
#define PW_HOST_AND_DEVICE
#endif
