# Every header compiles alone. A source that includes its own header first proves it; for each other header a source is
# generated. Headers that need a vendor's compiler or library stay in folders of their own.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
     ${PROJECT_SOURCE_DIR}/workloads/*.h ${PROJECT_SOURCE_DIR}/schedules/*.h ${PROJECT_SOURCE_DIR}/job/*.h ${PROJECT_SOURCE_DIR}/sim/*.h
     ${PROJECT_SOURCE_DIR}/search/*.h ${PROJECT_SOURCE_DIR}/exec/*.h ${PROJECT_SOURCE_DIR}/viz/*.h
     ${PROJECT_SOURCE_DIR}/report/*.h ${PROJECT_SOURCE_DIR}/cli/*.h)
list(FILTER headers EXCLUDE REGEX "/(cuda|mpi)/")
set(selfchecks)
foreach(header IN LISTS headers)
  string(REGEX REPLACE "[.]h$" ".cpp" source ${PROJECT_SOURCE_DIR}/${header})
  if(EXISTS ${source})
    file(STRINGS ${source} first_include REGEX "^#include" LIMIT_COUNT 1)
    if(first_include STREQUAL "#include \"${header}\"")
      continue()
    endif()
  endif()
  string(MAKE_C_IDENTIFIER ${header} identifier)
  set(selfcheck ${PROJECT_BINARY_DIR}/headers/${identifier}.cpp)
  file(CONFIGURE OUTPUT ${selfcheck} CONTENT "#include \"${header}\"\n")
  list(APPEND selfchecks ${selfcheck})
endforeach()
add_library(header_selfcheck OBJECT ${selfchecks})
target_compile_options(header_selfcheck PRIVATE -O0 -g0)
target_link_libraries(header_selfcheck PRIVATE pipewright_report pipewright_warnings
                      CLI11::CLI11 nlohmann_json::nlohmann_json oneDNN::dnnl OpenMP::OpenMP_CXX PkgConfig::hwloc
                      PkgConfig::xxhash)
