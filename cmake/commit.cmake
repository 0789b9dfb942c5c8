# Writes OUTPUT, a header with the commit of SOURCES: "1a2b3c4, " or "1a2b3c4-modified, ", or "" outside of a checkout.
cmake_policy(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCES} describe --always --exclude=* --abbrev=8 --dirty=-modified
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR NOT EXISTS ${SOURCES}/.git)
  set(commit "")
else()
  string(APPEND commit ", ")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#pragma once

namespace pw {

inline constexpr const char* kCommit = \"@commit@\";

}  // namespace pw
" @ONLY)
