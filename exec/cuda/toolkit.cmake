# Looks for everything the cuda backend needs and sets PIPEWRIGHT_HAVE_CUDA. Included by the top-level
# CMakeLists.txt, since a language is enabled for all folders below.
include(CheckLanguage)

set(PIPEWRIGHT_HAVE_CUDA OFF)
set(missing "")

# nvcc is often not on PATH: the toolkit's own folder is searched, too.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(PIPEWRIGHT_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  if(PIPEWRIGHT_NVCC)
    set(CMAKE_CUDA_COMPILER ${PIPEWRIGHT_NVCC})
  endif()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90-real CACHE STRING "GPU architectures: Hopper")
endif()
check_language(CUDA)

if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  # CMake 3.25 does not have nvcc's option for C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  include(${CMAKE_CURRENT_LIST_DIR}/libraries.cmake)
else()
  list(APPEND missing nvcc)
endif()

if(NOT missing)
  set(PIPEWRIGHT_HAVE_CUDA ON)
  message(STATUS "Backend cuda: CUDA ${CUDAToolkit_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
else()
  list(JOIN missing ", " missing)
  if(PIPEWRIGHT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PIPEWRIGHT_CUDA is ON, but these are missing: ${missing}")
  endif()
  message(STATUS "Backend cuda: not built, missing: ${missing}")
endif()
