# Installation: library, headers and a package for find_package(keynest); the program where it is built. The engine
# installs itself (component `engine`) when it is part of this build. Nothing installed names a build folder, so the
# prefix can be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/keynest)
install(TARGETS keynest EXPORT keynest-targets COMPONENT library)
install(EXPORT keynest-targets NAMESPACE keynest:: DESTINATION ${package_dir} COMPONENT library)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/keynest DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library
        FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/keynest COMPONENT library)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/keynest-config.cmake.in
                              ${PROJECT_BINARY_DIR}/keynest-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/keynest-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/keynest-config.cmake ${PROJECT_BINARY_DIR}/keynest-config-version.cmake
        DESTINATION ${package_dir} COMPONENT library)

if(KEYNEST_BUILD_PROGRAM)
  install(TARGETS keynest_program COMPONENT program)
endif()
