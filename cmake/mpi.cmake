# Looks for MPI, whose C functions start ranks, and sets PIPEWRIGHT_HAVE_MPI. The build and an installed pipewright that was
# built with it read this file.
set(MPI_CXX_SKIP_MPICXX ON)
if(PIPEWRIGHT_MPI STREQUAL "ON")
  find_package(MPI 3 REQUIRED COMPONENTS CXX)
else()
  find_package(MPI 3 COMPONENTS CXX)
endif()
set(PIPEWRIGHT_HAVE_MPI ${MPI_CXX_FOUND})
