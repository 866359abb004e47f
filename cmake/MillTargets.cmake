# What every target has in common, and one function to make the folder's library.

add_library(mill_options INTERFACE)
target_include_directories(mill_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(mill_options INTERFACE
  # -Wformat=2: no text from a file may ever be a format
  "$<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wshadow;-Wstrict-prototypes;-Wformat=2>"
  # -lineinfo: profilers and tests/cuda/kernel_gates.py name a kernel's loops by it
  "$<$<COMPILE_LANGUAGE:CUDA>:-lineinfo;-Xcompiler=-Wall,-Wextra,-Wshadow>")
if(MILL_WERROR)
  target_compile_options(mill_options INTERFACE
    "$<$<COMPILE_LANGUAGE:C>:-Werror>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()
if(MILL_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "MILL_FUZZ=ON needs clang with libFuzzer: add -DCMAKE_C_COMPILER=clang "
                        "(on Debian and Ubuntu: apt-get install clang libclang-rt-14-dev libomp-dev)")
  endif()
  # nor may a number from a file be converted to an integer that cannot hold it
  set(sanitize -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all
      -fno-omit-frame-pointer)
  target_compile_options(mill_options INTERFACE
    "$<$<COMPILE_LANGUAGE:C>:${sanitize};-fsanitize=fuzzer-no-link>")
  target_link_options(mill_options INTERFACE ${sanitize})
elseif(MILL_SANITIZE)
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(MILL_SANITIZE STREQUAL thread)
    set(sanitize -fsanitize=thread -fno-omit-frame-pointer)
    # its calls in a loop keep clang from vectorising the loop
    target_compile_options(mill_options INTERFACE -Wno-pass-failed)
  endif()
  target_compile_options(mill_options INTERFACE "$<$<COMPILE_LANGUAGE:C>:${sanitize}>")
  target_link_options(mill_options INTERFACE ${sanitize})
endif()

# mill_library(NAME SOURCES file... LINK library...): a static library of the
# folder's files with the common options; its link libraries are passed on.  A folder
# without sources gives an empty library, so that links need no conditions.
function(mill_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  if(arg_SOURCES)
    add_library(${name} STATIC ${arg_SOURCES})
    target_link_libraries(${name} PUBLIC mill_options ${arg_LINK})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE mill_options ${arg_LINK})
  endif()
endfunction()
