# pipewright_install_licences(FOLDER COMPONENT NAME=FILE ...): an installation of COMPONENT has in FOLDER the licence texts
# of libraries that are compiled into the binaries or shipped with them, and the file CONTENTS, which lists them. FILE is
# of the library; copy_licences.cmake finds the text by it.
function(pipewright_install_licences folder component)
  set(when "")
  if(NOT component STREQUAL program)
    set(when EXCLUDE_FROM_ALL)
  endif()
  install(CODE "
    set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${folder}\")
    set(libraries \"${ARGN}\")
    include(\"${PROJECT_SOURCE_DIR}/cmake/copy_licences.cmake\")
    " COMPONENT ${component} ${when})
endfunction()

# Headers and scripts that become parts of the binaries.
set(PIPEWRIGHT_COMPILED_IN Chart.js=${PIPEWRIGHT_CHART_JS})
foreach(library boost=boost/version.hpp cli11=CLI/CLI.hpp fmt=fmt/format.h nlohmann-json=nlohmann/json.hpp)
  string(REGEX MATCH "^(.+)=(.+)$" matched ${library})
  set(name ${CMAKE_MATCH_1})
  set(header ${CMAKE_MATCH_2})
  find_file(PIPEWRIGHT_HEADER_OF_${name} ${header} HINTS ${Boost_INCLUDE_DIRS} ${nlohmann_json_DIR}/../../../include
            ${CLI11_DIR}/../../../include ${fmt_DIR}/../../../include)
  list(APPEND PIPEWRIGHT_COMPILED_IN ${name}=${PIPEWRIGHT_HEADER_OF_${name}})
endforeach()
