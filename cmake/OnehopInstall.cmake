# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: both libraries, the public headers, the command with its manual and completions, and
# the files through which other projects find them (CMake package and pkg-config). The components are the packages of
# OnehopPackages.cmake.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(onehop_package_components runtime dev)
set(onehop_package_names libonehop${onehop_abi} libonehop-dev)
if(ONEHOP_BUILD_TOOLS)
  list(APPEND onehop_package_components tools)
  list(APPEND onehop_package_names onehop-tools)
endif()
if(ONEHOP_BUILD_NCCL)
  list(APPEND onehop_package_components nccl)
  list(APPEND onehop_package_names onehop-nccl)
endif()

install(TARGETS onehop_static onehop_shared EXPORT onehop-targets
  LIBRARY COMPONENT runtime NAMELINK_COMPONENT dev
  ARCHIVE COMPONENT dev)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/onehop TYPE INCLUDE COMPONENT dev FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")

set(onehop_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/onehop)
install(EXPORT onehop-targets NAMESPACE onehop:: DESTINATION ${onehop_package_dir} COMPONENT dev)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/onehopConfig.cmake.in
  ${PROJECT_BINARY_DIR}/onehopConfig.cmake INSTALL_DESTINATION ${onehop_package_dir})
# Before 1.0 a minor version may break.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/onehopConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/onehopConfig.cmake ${PROJECT_BINARY_DIR}/onehopConfigVersion.cmake
  DESTINATION ${onehop_package_dir} COMPONENT dev)

# Relative to the file itself, so that the tree may be moved and `cmake --install --prefix` may name any place.
file(RELATIVE_PATH onehop_pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/onehop.pc.in ${PROJECT_BINARY_DIR}/onehop.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/onehop.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
# Where --static of pkg-config looks first.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/static)
file(CREATE_LINK ../../libonehop.a ${PROJECT_BINARY_DIR}/static/libonehop.a SYMBOLIC)
install(FILES ${PROJECT_BINARY_DIR}/static/libonehop.a DESTINATION ${CMAKE_INSTALL_LIBDIR}/onehop/static COMPONENT dev)

# `make install` and cpack build this and no more.
add_custom_target(onehop_install_files)
add_dependencies(onehop_install_files onehop_static onehop_shared)

if(ONEHOP_BUILD_TOOLS)
  install(TARGETS onehop_command COMPONENT tools)
  add_dependencies(onehop_install_files onehop_command)
  # Of what the command says of itself, which it must run for: not where it cannot (other processors), and not under a
  # sanitizer, which needs settings.
  find_package(Python3 COMPONENTS Interpreter)
  if(Python3_FOUND AND NOT ONEHOP_SANITIZE AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
    set(documents ${PROJECT_BINARY_DIR}/command)
    set(generator ${PROJECT_SOURCE_DIR}/tools/onehop/command_documents.py)
    add_custom_command(OUTPUT ${documents}/onehop.1 ${documents}/onehop.bash ${documents}/_onehop ${documents}/onehop.fish
      COMMAND onehop_command --command-tree > ${PROJECT_BINARY_DIR}/command-tree.json
      COMMAND ${Python3_EXECUTABLE} ${generator} ${documents} ${PROJECT_VERSION} < ${PROJECT_BINARY_DIR}/command-tree.json
      DEPENDS onehop_command ${generator} VERBATIM COMMENT "Writing the manual and the completions of the command")
    add_custom_target(onehop_documents ALL DEPENDS ${documents}/onehop.1)
    add_dependencies(onehop_install_files onehop_documents)
    install(FILES ${documents}/onehop.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
    install(FILES ${documents}/onehop.bash DESTINATION share/bash-completion/completions RENAME onehop COMPONENT tools)
    install(FILES ${documents}/onehop.fish DESTINATION share/fish/vendor_completions.d COMPONENT tools)
    # zsh looks in another folder for what is packaged than for what is local.
    install(CODE "
      set(folder site-functions)
      if(CMAKE_INSTALL_PREFIX MATCHES \"(^|/)usr\$\")
        set(folder vendor-completions)
      endif()
      file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/share/zsh/\${folder}\" TYPE FILE FILES \"${documents}/_onehop\")"
      COMPONENT tools)
  endif()
endif()

if(ONEHOP_BUILD_NCCL)
  # Not where the loader looks for libraries: ldconfig would link it as libnccl.so.2, and every program would get it.
  install(TARGETS onehop_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/onehop COMPONENT nccl)
  add_dependencies(onehop_install_files onehop_nccl)
endif()

# Where Debian looks for it.
foreach(name component IN ZIP_LISTS onehop_package_names onehop_package_components)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/${name} RENAME copyright COMPONENT ${component})
endforeach()
include(OnehopPackages)
