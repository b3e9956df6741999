# Warnings and sanitizers for keynest's own code (never for the engine's), and the compiler cache.
add_library(keynest_sanitizers INTERFACE)
if(KEYNEST_SANITIZE)
  target_compile_options(keynest_sanitizers INTERFACE -fsanitize=${KEYNEST_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(keynest_sanitizers INTERFACE -fsanitize=${KEYNEST_SANITIZE})
endif()

add_library(keynest_flags INTERFACE)
target_link_libraries(keynest_flags INTERFACE keynest_sanitizers)
target_compile_options(keynest_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow
                       $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> $<$<BOOL:${KEYNEST_WERROR}>:-Werror>)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(KEYNEST_CCACHE ccache)
  mark_as_advanced(KEYNEST_CCACHE)
  if(KEYNEST_CCACHE)
    set(CMAKE_C_COMPILER_LAUNCHER ${KEYNEST_CCACHE})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${KEYNEST_CCACHE})
  endif()
endif()
