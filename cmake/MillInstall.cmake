if(TARGET starmill)
  install(TARGETS starmill RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT wheel)
  add_dependencies(to_install starmill)
endif()

# Man pages and bash completion are printed by the program itself, as Python.
if(TARGET starmill AND NOT CMAKE_CROSSCOMPILING)
  set(pages "${PROJECT_BINARY_DIR}/help")
  file(GLOB pages_python CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/python/starmill/cli/*")
  add_custom_command(OUTPUT "${pages}/completions/starmill" VERBATIM
    COMMAND "${CMAKE_COMMAND}" "-DSTARMILL=$<TARGET_FILE:starmill>" "-DOUTPUT=${pages}"
            -P "${PROJECT_SOURCE_DIR}/cmake/help-pages.cmake"
    DEPENDS starmill "${PROJECT_SOURCE_DIR}/cmake/help-pages.cmake" ${pages_python}
    COMMENT "Man pages and bash completion")
  add_custom_target(help_pages ALL DEPENDS "${pages}/completions/starmill")
  add_dependencies(to_install help_pages)
  install(DIRECTORY "${pages}/man1" DESTINATION "${CMAKE_INSTALL_MANDIR}")
  install(FILES "${pages}/completions/starmill"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
endif()

# dist: an archive of the last commit.  distcheck: that it can be built, installed and run.
set(archive "${PROJECT_BINARY_DIR}/starmill-${PROJECT_VERSION}.tar.gz")
add_custom_target(dist VERBATIM
  COMMAND "${CMAKE_COMMAND}" "-DGIT=${GIT_EXECUTABLE}" "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}"
          "-DOUTPUT=${archive}" -P "${PROJECT_SOURCE_DIR}/cmake/dist.cmake")
add_custom_target(distcheck VERBATIM
  COMMAND "${CMAKE_COMMAND}" -E env "MPIRUN=${MPIEXEC_EXECUTABLE}"
          "${PROJECT_SOURCE_DIR}/cmake/distcheck" "${archive}" "${PROJECT_BINARY_DIR}/distcheck"
          "${CMAKE_COMMAND}" -G "${CMAKE_GENERATOR}" "-DMILL_MPI=${MILL_MPI}"
          "-DMILL_CUDA=${MILL_CUDA}" -DMILL_TESTS=OFF
  USES_TERMINAL)
add_dependencies(distcheck dist)

install(FILES README.md LICENSE CITATION.cff CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        COMPONENT wheel)
install(DIRECTORY docs/ DESTINATION "${CMAKE_INSTALL_DOCDIR}" FILES_MATCHING PATTERN "*.md" PATTERN "*.ipynb" PATTERN "*.png" PATTERN "*.svg")
file(GLOB slurm_scripts CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/slurm/*.*")
install(FILES ${slurm_scripts} DESTINATION "${CMAKE_INSTALL_DATADIR}/starmill/slurm")
install(DIRECTORY config/ DESTINATION "${CMAKE_INSTALL_DATADIR}/starmill/config" COMPONENT wheel
        FILES_MATCHING PATTERN "*.yaml")
install(PROGRAMS slurm/starmill-submit DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(PROGRAMS packaging/smoke-test DESTINATION "${CMAKE_INSTALL_DATADIR}/starmill")
install(DIRECTORY libraries/ DESTINATION "${CMAKE_INSTALL_DATADIR}/starmill/libraries"
        COMPONENT wheel OPTIONAL FILES_MATCHING PATTERN "*.h5" PATTERN "*.md")
install(DIRECTORY python/starmill DESTINATION "${CMAKE_INSTALL_DATADIR}/starmill/python"
        FILES_MATCHING PATTERN "*.py" PATTERN "*.bash" PATTERN "*.html" PATTERN "*.txt")
install(FILES libstarmill/include/starmill/starmill.h
        DESTINATION "${CMAKE_INSTALL_DATADIR}/starmill/python/starmill")
