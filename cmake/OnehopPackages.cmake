# SPDX-License-Identifier: Apache-2.0
# Debian packages, one for each component that is installed: `make packages`, or cpack in a build tree whose target
# onehop_install_files is built. dpkg-shlibdeps finds what the binaries need.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME onehop)
set(CPACK_PACKAGE_CONTACT "The onehop authors")
set(CPACK_PACKAGE_VENDOR "The onehop authors")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_OUTPUT_FILE_PREFIX ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL ${onehop_package_components})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# The library's package has the version of its interface in its name, so that two of them can be installed.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libonehop${onehop_abi})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "${PROJECT_DESCRIPTION}: the shared library")

# The archive is linked with the libraries that the shared one brings along.
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libonehop-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
  "libonehop${onehop_abi} (= ${PROJECT_VERSION}), libfmt-dev, libspdlog-dev, libhwloc-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION "${PROJECT_DESCRIPTION}: headers, static library, CMake package and pkg-config file")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME onehop-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "${PROJECT_DESCRIPTION}: the command onehop")

set(CPACK_DEBIAN_NCCL_PACKAGE_NAME onehop-nccl)
set(CPACK_DEBIAN_NCCL_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_NCCL_DESCRIPTION "${PROJECT_DESCRIPTION}: a library in NCCL's place")
include(CPack)
