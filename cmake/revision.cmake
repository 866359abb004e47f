# Write MILL_REVISION, the git revision, with -dirty if the tree has changes, to
# OUTPUT; the file is written only if the revision has changed.
set(revision "unknown")
# git archive puts the commit there (.gitattributes)
file(STRINGS "${SOURCE_DIR}/cmake/archive-commit.txt" commit LIMIT_COUNT 1)
if(commit MATCHES "^[0-9a-f]+$")
  string(SUBSTRING "${commit}" 0 12 revision)
endif()
if(GIT)
  execute_process(COMMAND "${GIT}" -C "${SOURCE_DIR}" rev-parse --show-toplevel
                  OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH "${SOURCE_DIR}" source)
  # an unpacked archive inside some other repository has no revision of its own
  if(top STREQUAL source)
    execute_process(COMMAND "${GIT}" -C "${SOURCE_DIR}" describe --always --dirty --abbrev=12
                            --match=v[0-9]*
                    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                    RESULT_VARIABLE failed)
    if(NOT failed)
      set(revision "${described}")
    endif()
  endif()
endif()
set(text "#define MILL_REVISION \"${revision}\"\n")
set(old "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" old)
endif()
if(NOT old STREQUAL text)
  file(WRITE "${OUTPUT}" "${text}")
endif()
