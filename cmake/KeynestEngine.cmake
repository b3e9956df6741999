# ggml and libllama, found in this order: an installed package, a source folder, the pinned source archive.
if(KEYNEST_LLAMA_PACKAGE)
  find_package(llama CONFIG REQUIRED PATHS ${KEYNEST_LLAMA_PACKAGE} NO_DEFAULT_PATH)
  set(engine_libs llama ggml::ggml ggml::ggml-cpu ggml::ggml-base)
endif()
add_library(keynest_engine_libs INTERFACE)
target_link_libraries(keynest_engine_libs INTERFACE ${engine_libs})
