# Make OUTPUT, starmill-VERSION.tar.gz, of the last commit of SOURCE_DIR by GIT.
get_filename_component(name "${OUTPUT}" NAME)
string(REPLACE ".tar.gz" "" name "${name}")
if(NOT GIT)
  message(FATAL_ERROR "dist needs git")
endif()
execute_process(COMMAND "${GIT}" -C "${SOURCE_DIR}" status --porcelain OUTPUT_VARIABLE changes
                COMMAND_ERROR_IS_FATAL ANY)
if(changes)
  message(WARNING "${name} is the last commit, without these changes:\n${changes}")
endif()
execute_process(COMMAND "${GIT}" -C "${SOURCE_DIR}" archive --format=tar.gz "--prefix=${name}/"
                        -o "${OUTPUT}" HEAD
                COMMAND_ERROR_IS_FATAL ANY)
message(STATUS "${OUTPUT}")
