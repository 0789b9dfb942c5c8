# What an installation has besides the libraries: the man page and completions, which the program prints, docs and examples. `cpack
# --config BUILD/CPackConfig.cmake` makes a Debian package of the program with them.
set(printed ${PROJECT_BINARY_DIR}/printed)
add_custom_command(OUTPUT ${printed}/pipewright.1 ${printed}/pipewright ${printed}/_pipewright ${printed}/pipewright.fish
                   COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:pipewright> -D FOLDER=${printed}
                           -P ${PROJECT_SOURCE_DIR}/cmake/printed.cmake
                   DEPENDS pipewright cmake/printed.cmake VERBATIM)
add_custom_target(printed ALL DEPENDS ${printed}/pipewright.1)
install(FILES ${printed}/pipewright.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
install(FILES ${printed}/pipewright DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
install(FILES ${printed}/_pipewright DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT program)
install(FILES ${printed}/pipewright.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT program)
pipewright_install_licences(${CMAKE_INSTALL_DOCDIR}/licences program ${PIPEWRIGHT_COMPILED_IN})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program FILES_MATCHING
        PATTERN *.md PATTERN *.svg PATTERN *.png PATTERN docs/site EXCLUDE)
# The target `site` makes a site of the docs in BUILD/site, or says what this machine lacks. It is installed if it was made.
add_custom_target(site COMMAND scripts/site --optional --build ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/site
                  DEPENDS pipewright WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
install(DIRECTORY ${PROJECT_BINARY_DIR}/site/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/html COMPONENT program OPTIONAL)
install(DIRECTORY workloads/configs DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT program FILES_MATCHING PATTERN *.yaml)

install(CODE "include(\"${PROJECT_SOURCE_DIR}/cmake/folder_permissions.cmake\")" ALL_COMPONENTS)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME pipewright)
set(CPACK_PACKAGE_CONTACT "pipewright developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Pipeline-parallel training, predicted and executed from one plan")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME pipewright)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "gnuplot-nox")
if(PIPEWRIGHT_HAVE_MPI)
  string(APPEND CPACK_DEBIAN_PACKAGE_RECOMMENDS ", openmpi-bin | mpich")  # the launcher of ranks
endif()
include(CPack)
