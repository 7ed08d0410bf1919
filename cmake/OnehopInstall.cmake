# What `cmake --install` puts where: both libraries, the public headers, the command, and the files through which other
# projects find them (CMake package and pkg-config).
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

install(TARGETS onehop_static onehop_shared EXPORT onehop-targets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/onehop TYPE INCLUDE FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")

set(onehop_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/onehop)
install(EXPORT onehop-targets NAMESPACE onehop:: DESTINATION ${onehop_package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/onehopConfig.cmake.in
  ${PROJECT_BINARY_DIR}/onehopConfig.cmake INSTALL_DESTINATION ${onehop_package_dir})
# Before 1.0 a minor version may break.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/onehopConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/onehopConfig.cmake ${PROJECT_BINARY_DIR}/onehopConfigVersion.cmake
  DESTINATION ${onehop_package_dir})

# Relative to the file itself, so that the tree may be moved and `cmake --install --prefix` may name any place.
file(RELATIVE_PATH onehop_pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/onehop.pc.in ${PROJECT_BINARY_DIR}/onehop.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/onehop.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
# Where --static of pkg-config looks first.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/static)
file(CREATE_LINK ../../libonehop.a ${PROJECT_BINARY_DIR}/static/libonehop.a SYMBOLIC)
install(FILES ${PROJECT_BINARY_DIR}/static/libonehop.a DESTINATION ${CMAKE_INSTALL_LIBDIR}/onehop/static)
