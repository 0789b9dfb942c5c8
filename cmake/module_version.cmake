# Writes OUTPUT, a header with the version that the program and its modules must have in common: VERSION, and a hash of the
# HEADERS that both are compiled with.
cmake_policy(VERSION 3.25)
set(texts "")
foreach(header IN LISTS HEADERS)
  file(SHA256 ${header} hash)
  string(APPEND texts ${hash})
endforeach()
string(SHA256 hash "${texts}")
string(SUBSTRING ${hash} 0 12 hash)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#pragma once

namespace pw {

inline constexpr const char* kModuleVersion = \"@VERSION@-@hash@\";

}  // namespace pw
" @ONLY)
