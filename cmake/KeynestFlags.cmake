# Warnings and sanitizers for keynest's own code (never for the engine's).
add_library(keynest_flags INTERFACE)
target_compile_options(keynest_flags INTERFACE -Wall -Wextra -Wshadow -Wpedantic -Wnon-virtual-dtor
                       $<$<BOOL:${KEYNEST_WERROR}>:-Werror>)
if(KEYNEST_SANITIZE)
  target_compile_options(keynest_flags INTERFACE -fsanitize=${KEYNEST_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(keynest_flags INTERFACE -fsanitize=${KEYNEST_SANITIZE})
endif()
