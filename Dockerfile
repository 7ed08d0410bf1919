# SPDX-License-Identifier: Apache-2.0
# onehop in a container: the library, its headers and the command, as Debian packages.
#   docker build -t onehop .                                host ranks only
#   docker build -t onehop --build-arg PRESET=release .     with the kernels for GPUs, and CUDA's compiler to build them
#   docker run --rm --ipc=private onehop bench all-reduce   (with GPUs: --gpus all)
# Ranks in different containers: docs/guide/groups.md#containers. The steps are those of `make packages`.
FROM debian:12 AS build
ARG PRESET=host
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git make wget
RUN if [ "$PRESET" = release ]; then \
      wget -q https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb && \
      dpkg -i cuda-keyring_1.1-1_all.deb && apt-get update && \
      apt-get install -y --no-install-recommends cuda-minimal-build-13-0; \
    fi
COPY . /onehop
WORKDIR /onehop
RUN scripts/install-deps.sh build && \
    scripts/build.sh "$PRESET" -DONEHOP_BUILD_TESTS=OFF -DONEHOP_BUILD_EXAMPLES=OFF -DONEHOP_BUILD_BENCH=OFF onehop_install_files && \
    cd "build/$PRESET" && cpack -G DEB

FROM debian:12
ARG PRESET=host
COPY --from=build /onehop/build/$PRESET/packages/*.deb /tmp/packages/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/packages/*.deb && rm -rf /tmp/packages /var/lib/apt/lists/*
ENTRYPOINT ["onehop"]
CMD ["doctor"]
