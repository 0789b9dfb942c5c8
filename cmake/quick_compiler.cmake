# Clang compiles what is not optimised in half of GCC's time, and its objects link with GCC's. The presets of tests use it
# for tests and for what need not be fast: the reading of configs and the writing of texts.
set(PIPEWRIGHT_QUICK_COMPILER "" CACHE STRING "Compiler of what need not be fast, if not that of the project: clang++")

function(pipewright_compile_quickly name)
  if(PIPEWRIGHT_QUICK_COMPILER)
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER
      "${PROJECT_SOURCE_DIR}/cmake/compile_with;${CMAKE_CXX_COMPILER_LAUNCHER} ${PIPEWRIGHT_QUICK_COMPILER}")
    target_compile_options(${name} PRIVATE -O0 -Wno-unknown-warning-option -Wno-unused-command-line-argument
                           -Wno-ignored-optimization-argument)
  endif()
endfunction()
