# Installs keynest, moves the installation, and builds and runs a consumer against it.
#   cmake -DMODE=full|library -DSOURCE=... -DBUILD=... -DWORK=... -DENGINE_PREFIX=... -DGENERATOR=... -P run.cmake
# MODE full installs the build in BUILD. MODE library configures and builds the library alone, without the program and with
# the packages that only program and tests need made impossible to find, and installs that.
# ENGINE_PREFIX: the engine package BUILD was made with; empty where BUILD built the engine itself.

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE log ERROR_VARIABLE log)
  if(failed)
    string(JOIN " " command ${ARGN})
    message(FATAL_ERROR "failed (${failed}): ${command}\n${log}")
  endif()
  set(log "${log}" PARENT_SCOPE)
endfunction()

# No text file of the package may name the folders it was built from.
function(check_relocatable prefix)
  file(GLOB_RECURSE texts ${prefix}/*.cmake ${prefix}/*.pc ${prefix}/*.h)
  foreach(text ${texts})
    file(READ ${text} content)
    foreach(folder ${SOURCE} ${BUILD} ${WORK})
      string(FIND "${content}" "${folder}" at)
      if(NOT at EQUAL -1)
        message(FATAL_ERROR "${text} names ${folder}: the installation can't be moved")
      endif()
    endforeach()
  endforeach()
endfunction()

set(parallel --parallel 2)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

set(prefixes ${WORK}/moved)
if(ENGINE_PREFIX)
  list(APPEND prefixes ${ENGINE_PREFIX})
endif()

if(MODE STREQUAL "library")
  if(NOT ENGINE_PREFIX)
    run(${CMAKE_COMMAND} --install ${BUILD} --component engine --prefix ${WORK}/engine)
    set(ENGINE_PREFIX ${WORK}/engine)
    list(APPEND prefixes ${ENGINE_PREFIX})
  endif()
  run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/library -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release
      -DKEYNEST_LLAMA_PACKAGE=${ENGINE_PREFIX} -DKEYNEST_BUILD_PROGRAM=OFF -DKEYNEST_BUILD_TESTS=OFF
      -DKEYNEST_BUILD_BENCH=OFF -DKEYNEST_BUILD_EXAMPLES=OFF -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON
      -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON)
  run(${CMAKE_COMMAND} --build ${WORK}/library ${parallel})
  run(${CMAKE_COMMAND} --install ${WORK}/library --prefix ${WORK}/installed)
else()
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed)
endif()

file(RENAME ${WORK}/installed ${WORK}/moved)
check_relocatable(${WORK}/moved)

# One element of a list is one argument: the prefixes travel with their semicolons escaped.
string(REPLACE ";" "\\;" prefix_path "${prefixes}")
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${WORK}/consumer -G ${GENERATOR}
    -DCMAKE_BUILD_TYPE=Release "-DCMAKE_PREFIX_PATH=${prefix_path}")
run(${CMAKE_COMMAND} --build ${WORK}/consumer ${parallel})
foreach(program consumer_cpp consumer_c)
  if(EXISTS ${WORK}/consumer/${program})
    run(${WORK}/consumer/${program})
    message(STATUS "${program} says:\n${log}")
  endif()
endforeach()
if(MODE STREQUAL "full" AND EXISTS ${WORK}/moved/bin/keynest)
  run(${WORK}/moved/bin/keynest --version)
  message(STATUS "the installed program says:\n${log}")
endif()
file(REMOVE_RECURSE ${WORK})
