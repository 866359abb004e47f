# Write man1/starmill.1, man1/starmill-JOB.1 and completions/starmill below OUTPUT,
# as the program STARMILL prints them.
function(print file)
  execute_process(COMMAND "${STARMILL}" help ${ARGN} OUTPUT_FILE "${OUTPUT}/${file}"
                  COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${OUTPUT}") # pages of jobs that are gone
file(MAKE_DIRECTORY "${OUTPUT}/man1" "${OUTPUT}/completions")
execute_process(COMMAND "${STARMILL}" --help OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\n  [a-z-]+ " jobs "${text}")
execute_process(COMMAND "${STARMILL}" help completion RESULT_VARIABLE failed OUTPUT_FILE
                "${OUTPUT}/completions/starmill")
if(failed)
  message(WARNING "there will be no man pages and no completion: python3 makes them")
  return()
endif()
print(man1/starmill.1 man)
foreach(job ${jobs})
  string(STRIP "${job}" job)
  print(man1/starmill-${job}.1 man ${job})
endforeach()
