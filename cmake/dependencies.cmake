# The libraries that pipewright's own link to. Its build reads this file, and so does find_package(pipewright) in builds
# against an installed one: there a missing library makes pipewright missing, here it is an error.
include(CMakeFindDependencyMacro)
set(required "")
if(NOT CMAKE_FIND_PACKAGE_NAME)
  set(required REQUIRED)
endif()
find_dependency(Boost 1.74 ${required})
find_dependency(fmt 9 ${required})
find_dependency(yaml-cpp 0.7 ${required})
find_dependency(nlohmann_json 3.11 ${required})
find_dependency(Threads ${required})
find_dependency(ZLIB ${required})
find_dependency(OpenMP ${required} COMPONENTS CXX)

# Debian's package configuration of oneDNN requires OpenCL, which its CPU engine does not need.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp ${required})
find_library(DNNL_LIBRARY dnnl ${required})
if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY AND NOT TARGET oneDNN::dnnl)
  add_library(oneDNN::dnnl UNKNOWN IMPORTED)
  set_target_properties(oneDNN::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
endif()

find_dependency(PkgConfig ${required})
pkg_check_modules(hwloc ${required} IMPORTED_TARGET hwloc)
pkg_check_modules(xxhash ${required} IMPORTED_TARGET libxxhash)
pkg_check_modules(sqlite3 ${required} IMPORTED_TARGET sqlite3)
