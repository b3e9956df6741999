# The pinned source archive of the engine: fetched by package name, checked, unpacked into the build tree.

set(KEYNEST_ENGINE_PACKAGE llama-cpp-python)
set(KEYNEST_ENGINE_VERSION 0.3.36)
set(KEYNEST_ENGINE_ARCHIVE llama_cpp_python-${KEYNEST_ENGINE_VERSION}.tar.gz)
set(KEYNEST_ENGINE_SHA256 832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e)

if(DEFINED ENV{KEYNEST_DOWNLOAD_DIR})
  set(default_download_dir "$ENV{KEYNEST_DOWNLOAD_DIR}")
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(default_download_dir "$ENV{XDG_CACHE_HOME}/keynest")
else()
  set(default_download_dir "$ENV{HOME}/.cache/keynest")
endif()
set(KEYNEST_DOWNLOAD_DIR "${default_download_dir}" CACHE PATH "Where downloaded archives are kept")

set(KEYNEST_ENGINE_WAYS_OUT
    "Other ways to give keynest its engine:\n"
    "  -DKEYNEST_LLAMA_PACKAGE=PREFIX    an installed llama.cpp\n"
    "  -DKEYNEST_LLAMA_CPP_DIR=FOLDER    a llama.cpp source folder\n"
    "  or put ${KEYNEST_ENGINE_ARCHIVE} (source distribution of ${KEYNEST_ENGINE_PACKAGE} "
    "${KEYNEST_ENGINE_VERSION}) into ${KEYNEST_DOWNLOAD_DIR} by hand")
string(JOIN "" KEYNEST_ENGINE_WAYS_OUT ${KEYNEST_ENGINE_WAYS_OUT})

# Finds `python3 -m pip`; sets `result` to the interpreter.
function(keynest_find_pip result)
  find_program(KEYNEST_PYTHON3 python3)
  mark_as_advanced(KEYNEST_PYTHON3)
  if(NOT KEYNEST_PYTHON3)
    message(FATAL_ERROR "keynest: python3 is needed to fetch the engine's sources, and was not found. Install it "
                        "(Debian: apt-get install python3 python3-pip).\n${KEYNEST_ENGINE_WAYS_OUT}")
  endif()
  execute_process(COMMAND ${KEYNEST_PYTHON3} -m pip --version RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    message(FATAL_ERROR "keynest: ${KEYNEST_PYTHON3} has no pip, which is needed to fetch the engine's sources. "
                        "Install it (Debian: apt-get install python3-pip).\n${KEYNEST_ENGINE_WAYS_OUT}")
  endif()
  set(${result} ${KEYNEST_PYTHON3} PARENT_SCOPE)
endfunction()

# Downloads the archive to `archive`. It comes to be there only after its sha256 was found right.
function(keynest_download_engine archive)
  keynest_find_pip(python)
  string(RANDOM LENGTH 8 suffix)
  set(partial "${KEYNEST_DOWNLOAD_DIR}/.partial-${suffix}")
  message(STATUS "keynest: fetching the engine's sources, ${KEYNEST_ENGINE_PACKAGE} ${KEYNEST_ENGINE_VERSION} (73 MiB)")
  execute_process(
    COMMAND ${python} -m pip download --disable-pip-version-check --no-deps --no-binary ${KEYNEST_ENGINE_PACKAGE}
            --dest "${partial}" ${KEYNEST_ENGINE_PACKAGE}==${KEYNEST_ENGINE_VERSION}
    RESULT_VARIABLE failed OUTPUT_VARIABLE log ERROR_VARIABLE log)
  if(failed OR NOT EXISTS "${partial}/${KEYNEST_ENGINE_ARCHIVE}")
    file(REMOVE_RECURSE "${partial}")
    message(FATAL_ERROR "keynest: could not fetch ${KEYNEST_ENGINE_PACKAGE} ${KEYNEST_ENGINE_VERSION} with pip. Is "
                        "there a network connection? pip said:\n${log}\n${KEYNEST_ENGINE_WAYS_OUT}")
  endif()
  file(SHA256 "${partial}/${KEYNEST_ENGINE_ARCHIVE}" found)
  if(NOT found STREQUAL KEYNEST_ENGINE_SHA256)
    file(REMOVE_RECURSE "${partial}")
    message(FATAL_ERROR "keynest: the fetched ${KEYNEST_ENGINE_ARCHIVE} is not the pinned one, and was deleted.\n"
                        "  expected sha256 ${KEYNEST_ENGINE_SHA256}\n  found sha256    ${found}\n"
                        "${KEYNEST_ENGINE_WAYS_OUT}")
  endif()
  file(RENAME "${partial}/${KEYNEST_ENGINE_ARCHIVE}" "${archive}")
  file(REMOVE_RECURSE "${partial}")
endfunction()

# Deletes a cached archive that is not the pinned one.
function(keynest_check_cached_engine archive)
  if(NOT EXISTS "${archive}")
    return()
  endif()
  file(SHA256 "${archive}" found)
  if(NOT found STREQUAL KEYNEST_ENGINE_SHA256)
    message(STATUS "keynest: ${archive} is damaged (sha256 ${found}); deleted, fetching it again")
    file(REMOVE "${archive}")
  endif()
endfunction()

# Sets `result` to the unpacked llama.cpp source folder.
function(keynest_fetch_engine result)
  string(SUBSTRING ${KEYNEST_ENGINE_SHA256} 0 12 short)
  set(source "${PROJECT_BINARY_DIR}/_engine/source-${short}")
  set(${result} "${source}" PARENT_SCOPE)
  if(EXISTS "${source}/CMakeLists.txt")
    return()
  endif()
  set(archive "${KEYNEST_DOWNLOAD_DIR}/${KEYNEST_ENGINE_ARCHIVE}")
  file(MAKE_DIRECTORY "${KEYNEST_DOWNLOAD_DIR}")
  keynest_check_cached_engine("${archive}")
  if(NOT EXISTS "${archive}")
    keynest_download_engine("${archive}")
  endif()
  message(STATUS "keynest: unpacking ${archive}")
  # Unpacked beside and renamed, so that an interrupted configure never leaves half a source folder.
  set(unpacked "${PROJECT_BINARY_DIR}/_engine/unpacking")
  file(REMOVE_RECURSE "${unpacked}")
  file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${unpacked}" PATTERNS "*/vendor/llama.cpp/*")
  set(unpacked_source "${unpacked}/llama_cpp_python-${KEYNEST_ENGINE_VERSION}/vendor/llama.cpp")
  file(REMOVE "${unpacked_source}/.git")  # of a submodule; leads nowhere
  file(RENAME "${unpacked_source}" "${source}")
  file(REMOVE_RECURSE "${unpacked}")
endfunction()
