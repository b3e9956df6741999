# Checks that tests know when they run under a sanitizer, with every compiler that is there.
#   cmake -DTESTS=... -P run.cmake

foreach(name g++ clang++)
  find_program(compiler_${name} ${name})
  if(NOT compiler_${name})
    continue()
  endif()
  foreach(sanitizer none address thread)
    set(flags -DSANITIZED=false)
    if(NOT sanitizer STREQUAL "none")
      set(flags -DSANITIZED=true -fsanitize=${sanitizer})
    endif()
    execute_process(COMMAND ${compiler_${name}} -std=c++20 -I${TESTS} ${flags} -fsyntax-only ${TESTS}/sanitized/check.cc
                    RESULT_VARIABLE failed ERROR_VARIABLE log)
    if(failed)
      message(FATAL_ERROR "${name}, sanitizer ${sanitizer}:\n${log}")
    endif()
  endforeach()
endforeach()
