# SPDX-License-Identifier: MIT
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tilewave)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tilewave-config.cmake.in
                              ${PROJECT_BINARY_DIR}/tilewave-config.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tilewave-config-version.cmake COMPATIBILITY SameMinorVersion
                                 ARCH_INDEPENDENT)

install(TARGETS tilewave tilewave_host EXPORT tilewave-targets)
install(EXPORT tilewave-targets NAMESPACE tilewave:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/tilewave-config.cmake ${PROJECT_BINARY_DIR}/tilewave-config-version.cmake
              ${PROJECT_SOURCE_DIR}/cmake/TilewaveRooms.cmake
              ${PROJECT_SOURCE_DIR}/cmake/TilewaveRoomNames.cmake ${PROJECT_SOURCE_DIR}/cmake/TilewaveHip.cmake
        DESTINATION ${package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tilewave DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
