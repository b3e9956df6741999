# One object library per folder under src/, so that a layer can be built and tested alone, and one library of all.
set(KEYNEST_LAYERS "")

function(keynest_layer name)
  cmake_parse_arguments(ARG "" "" "USES;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
  add_library(keynest_${name} OBJECT ${sources})
  target_include_directories(keynest_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  # What the layers below link is linked too; their objects are not.
  set(link ${ARG_LINK})
  foreach(used ${ARG_USES})
    get_target_property(below keynest_${used} KEYNEST_LINK)
    list(APPEND link ${below})
  endforeach()
  list(REMOVE_DUPLICATES link)
  set_property(TARGET keynest_${name} PROPERTY KEYNEST_LINK "${link}")
  target_link_libraries(keynest_${name} PRIVATE keynest_flags PUBLIC ${link})
  set(KEYNEST_LAYERS ${KEYNEST_LAYERS} keynest_${name} PARENT_SCOPE)
endfunction()

function(keynest_library)
  add_library(keynest STATIC)
  add_library(keynest::keynest ALIAS keynest)
  foreach(layer ${KEYNEST_LAYERS})
    target_sources(keynest PRIVATE $<TARGET_OBJECTS:${layer}>)
  endforeach()
  target_include_directories(keynest PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                             $<INSTALL_INTERFACE:include>)
  target_compile_features(keynest PUBLIC cxx_std_20)
  # An installed keynest finds the engine and Highway again in keynest-config.cmake.
  target_link_libraries(keynest PUBLIC Threads::Threads
                        $<BUILD_INTERFACE:keynest_engine_libs> $<INSTALL_INTERFACE:keynest::engine>
                        $<BUILD_INTERFACE:PkgConfig::HWY> $<INSTALL_INTERFACE:keynest::highway>
                        $<BUILD_INTERFACE:keynest_sanitizers>)
endfunction()
