# The engine, ggml and libllama as static libraries. Found in this order:
#   1. an installed package: -DKEYNEST_LLAMA_PACKAGE=PREFIX or -Dllama_DIR=FOLDER
#   2. a source folder: -DKEYNEST_LLAMA_CPP_DIR=FOLDER
#   3. the pinned source archive, fetched by package name with pip, its sha256 checked
# A build that shares the engine of another one (presets dev, asan, tsan) names that one's engine package in
# KEYNEST_ENGINE_REUSE: it is taken when it is there and was made from the same pinned archive.
#
# Defines keynest_engine_libs, what a target links to use the engine. Sets KEYNEST_ENGINE_PREFIX to the package's prefix,
# or to nothing when the engine is part of this build (and installed with keynest).

set(KEYNEST_LLAMA_PACKAGE "" CACHE PATH "Prefix of an installed llama.cpp with ggml")
set(KEYNEST_LLAMA_CPP_DIR "" CACHE PATH "Source folder of llama.cpp")
set(KEYNEST_ENGINE_REUSE "" CACHE PATH "Engine package of another keynest build, used if it is there and fits")
include(KeynestEngineFetch)

# Package: targets llama, ggml::ggml, ggml::ggml-cpu, ggml::ggml-base.
macro(keynest_engine_from_package)
  find_package(llama CONFIG QUIET ${ARGN})
  if(NOT llama_FOUND)
    message(FATAL_ERROR
      "keynest: no llama.cpp package (llama-config.cmake) where KEYNEST_LLAMA_PACKAGE or llama_DIR points.\n"
      "  KEYNEST_LLAMA_PACKAGE: ${KEYNEST_LLAMA_PACKAGE}\n  llama_DIR: ${llama_DIR}\n"
      "Give the prefix that llama.cpp was installed to (the folder above lib/cmake/llama), or unset both to let "
      "keynest fetch and build its pinned version.")
  endif()
  get_filename_component(KEYNEST_ENGINE_PREFIX "${llama_DIR}/../../.." ABSOLUTE)
  set(keynest_engine_targets llama ggml::ggml ggml::ggml-cpu ggml::ggml-base)
  message(STATUS "keynest: engine from the package in ${llama_DIR}")
endmacro()

macro(keynest_engine_from_source folder)
  if(NOT EXISTS "${folder}/src/llama.cpp" OR NOT EXISTS "${folder}/ggml/CMakeLists.txt")
    message(FATAL_ERROR "keynest: ${folder} is not a llama.cpp source folder (src/llama.cpp or ggml/ is missing).\n"
                        "KEYNEST_LLAMA_CPP_DIR must name the top folder of llama.cpp's sources.")
  endif()
  set(KEYNEST_LLAMA_SOURCE "${folder}")
  set(KEYNEST_ENGINE_PREFIX "")
  set(keynest_engine_targets llama ggml ggml-cpu ggml-base)
  message(STATUS "keynest: engine built from ${folder}")
  add_subdirectory(${PROJECT_SOURCE_DIR}/cmake/engine ${PROJECT_BINARY_DIR}/_engine/build SYSTEM)
endmacro()

# True in `result` when KEYNEST_ENGINE_REUSE holds an engine made from the archive this version pins.
function(keynest_engine_reusable result)
  set(${result} OFF PARENT_SCOPE)
  set(stamp "${KEYNEST_ENGINE_REUSE}/share/keynest/engine.txt")
  if(KEYNEST_ENGINE_REUSE AND EXISTS "${stamp}")
    file(READ "${stamp}" made_from)
    if(made_from STREQUAL KEYNEST_ENGINE_SHA256)
      set(${result} ON PARENT_SCOPE)
    endif()
  endif()
endfunction()

keynest_engine_reusable(reuse_engine)
if(KEYNEST_LLAMA_PACKAGE)
  keynest_engine_from_package(PATHS "${KEYNEST_LLAMA_PACKAGE}" NO_DEFAULT_PATH)
elseif(llama_DIR AND NOT reuse_engine)
  keynest_engine_from_package()
elseif(KEYNEST_LLAMA_CPP_DIR)
  get_filename_component(given_source "${KEYNEST_LLAMA_CPP_DIR}" ABSOLUTE BASE_DIR "${CMAKE_BINARY_DIR}")
  keynest_engine_from_source("${given_source}")
elseif(reuse_engine)
  keynest_engine_from_package(PATHS "${KEYNEST_ENGINE_REUSE}" NO_DEFAULT_PATH)
  unset(llama_DIR CACHE)  # not the user's choice: it must not win over another way next time
else()
  keynest_fetch_engine(fetched_source)
  keynest_engine_from_source("${fetched_source}")
  # Says what was built, so that another build may reuse it; see keynest_engine_reusable.
  file(WRITE "${PROJECT_BINARY_DIR}/_engine/engine.txt" "${KEYNEST_ENGINE_SHA256}")
  install(FILES "${PROJECT_BINARY_DIR}/_engine/engine.txt" DESTINATION share/keynest COMPONENT engine)
endif()

add_library(keynest_engine_libs INTERFACE)
target_link_libraries(keynest_engine_libs INTERFACE ${keynest_engine_targets})
