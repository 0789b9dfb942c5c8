# Installs BUILD into FOLDER/prefix, builds SOURCE/examples with it, and compares their output with that of the
# installed program. FLAGS: of the compiler. MODULE: the cuda backend with the stand-in of the toolkit, which
# another program loads.
set(prefix ${FOLDER}/prefix)
file(REMOVE_RECURSE ${FOLDER})

function(run)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE said ERROR_VARIABLE said_of_errors RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}: ${status}\n${said}${said_of_errors}")
  endif()
  set(said "${said}" PARENT_SCOPE)
endfunction()

function(expect text)
  string(FIND "${said}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "no '${text}' in\n${said}")
  endif()
endfunction()

# The files of the package do not name the source tree.
run(sh -c "umask 077 && exec \"$@\"" sh ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
run(find ${prefix} -mindepth 1 -type d ! -perm 755)
if(said)
  message(FATAL_ERROR "folders that others cannot read, or can write to:\n${said}")
endif()
file(GLOB_RECURSE package ${prefix}/*.cmake)
foreach(file IN LISTS package)
  file(READ ${file} text)
  string(FIND "${text}" "${SOURCE}/" at)
  if(NOT at EQUAL -1)
    message(FATAL_ERROR "${file} names ${SOURCE}")
  endif()
endforeach()

# Every public header can be included from the prefix alone, in any order: by a program that also runs a job.
file(COPY ${SOURCE}/examples DESTINATION ${FOLDER})
file(GLOB_RECURSE headers RELATIVE ${prefix}/include ${prefix}/include/*.h)
list(REVERSE headers)
list(TRANSFORM headers REPLACE "(.+)" "#include \"\\1\"\n")
list(JOIN headers "" headers)
file(WRITE ${FOLDER}/headers/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)\nproject(headers LANGUAGES CXX)\n"
     "find_package(pipewright REQUIRED)\nadd_subdirectory(../examples examples)\n"
     "add_executable(run run.cpp)\ntarget_link_libraries(run PRIVATE pipewright::pipewright)\n")
file(WRITE ${FOLDER}/headers/run.cpp "${headers}#include <cstdio>
int main(int, char** values) {
    pw::Notices notices;
    const pw::Job job = pw::make_job(pw::load_config(values[1], {\"run.backend=cuda\", \"training.steps=2\"}), notices);
    std::puts(pw::run(job, {}).weights_hash.c_str());
}
")

run(${CMAKE_COMMAND} -S ${FOLDER}/headers -B ${FOLDER}/build -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS})
run(${CMAKE_COMMAND} --build ${FOLDER}/build)

set(config ${FOLDER}/examples/two_devices.yaml)
run(${prefix}/bin/pipewright simulate ${config})
if(NOT said MATCHES "step time ([0-9.]+ [a-z]+)")
  message(FATAL_ERROR "no step time in\n${said}")
endif()
set(predicted "gpipe on 2 devices: step ${CMAKE_MATCH_1}, ")
run(${prefix}/bin/pipewright search ${config})
if(NOT said MATCHES "best: ([^\n]+), step ([0-9.]+ [a-z]+);")
  message(FATAL_ERROR "no best plan in\n${said}")
endif()
set(best "best: ${CMAKE_MATCH_1}, none is faster than ")
set(best_step ": step ${CMAKE_MATCH_2}, ")
run(${FOLDER}/build/examples/two_devices ${config})
expect("${predicted}")
expect("${best}")
expect("${best_step}")

# The other example prints the results of the program for both configs and for the sweep.
set(other ${FOLDER}/examples/two_devices_1f1b.yaml)
set(axes "pipeline.micro_batches: [4, 8, 16], pipeline.schedule: [gpipe, 1f1b, zb-h1]")
run(${prefix}/bin/pipewright simulate ${other} --set "sweep={${axes}}")
if(NOT said MATCHES "best: ([^:\n]+): ")
  message(FATAL_ERROR "no best point in\n${said}")
endif()
set(best "best: ${CMAKE_MATCH_1}\n")
run(${prefix}/bin/pipewright simulate ${other})
if(NOT said MATCHES "step time ([0-9.]+ [a-z]+)   ([0-9.e+]+ samples/s)")
  message(FATAL_ERROR "no step time in\n${said}")
endif()
set(predicted_other "  step ${CMAKE_MATCH_1}, ${CMAKE_MATCH_2}, ")
run(${FOLDER}/build/examples/compare_and_sweep ${config} ${other})
expect("${predicted_other}")
expect("faster: ")
expect("${best}")
set(load ${CMAKE_COMMAND} -E env PIPEWRIGHT_CUDA_MODULE=${MODULE})
run(${load} ${FOLDER}/build/run ${config})
string(STRIP "${said}" weights)
run(${load} ${prefix}/bin/pipewright run ${config} --set run.backend=cuda --set training.steps=2 --json)
expect("\"weights_hash\": \"${weights}\"")
