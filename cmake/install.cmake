# `cmake --install BUILD --prefix PREFIX`: the program, the libraries with their public headers, and what
# find_package(pipewright) reads. The function pipewright_library names the headers of each library.
include(CMakePackageConfigHelpers)

# All libraries under one name, in the build and in an installation.
add_library(pipewright_library INTERFACE)
add_library(pipewright::pipewright ALIAS pipewright_library)
target_compile_features(pipewright_library INTERFACE cxx_std_20)
target_include_directories(pipewright_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(pipewright_library INTERFACE pipewright_report)
set_target_properties(pipewright_library PROPERTIES EXPORT_NAME pipewright)
# The module of the cuda backend calls functions of the program that loads it, and is found there.
target_link_options(pipewright_library INTERFACE ${PIPEWRIGHT_EXPORTS}
                    $<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/lib/pipewright>)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/pipewright)
install(TARGETS pipewright COMPONENT program)
install(TARGETS pipewright_library EXPORT pipewrightTargets)
install(EXPORT pipewrightTargets NAMESPACE pipewright:: DESTINATION ${package})

set(PIPEWRIGHT_WITH_MPI OFF)
if(PIPEWRIGHT_HAVE_MPI)
  set(PIPEWRIGHT_WITH_MPI ON)
endif()
configure_package_config_file(cmake/pipewrightConfig.cmake.in ${PROJECT_BINARY_DIR}/pipewrightConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pipewrightConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/pipewrightConfig.cmake ${PROJECT_BINARY_DIR}/pipewrightConfigVersion.cmake
              cmake/dependencies.cmake cmake/mpi.cmake
        DESTINATION ${package})
