# Sanitizers and libFuzzer for whatever is added after this file is included. gRPC, protobuf and GoogleTest are
# installed libraries and stay as they are.

set(DGR_SANITIZE "" CACHE STRING "Nothing, 'address' (with undefined behaviour), or 'thread'")
option(DGR_FUZZER "Make the fuzz targets libFuzzer programs; needs clang" OFF)

if(DGR_SANITIZE STREQUAL "address")
    set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(DGR_SANITIZE STREQUAL "thread")
    set(sanitizers -fsanitize=thread)
elseif(DGR_SANITIZE)
    message(FATAL_ERROR "DGR_SANITIZE is '${DGR_SANITIZE}'; it can be empty, address or thread")
endif()

if(DGR_SANITIZE)
    add_compile_options(${sanitizers} -fno-omit-frame-pointer -g1)
    add_link_options(${sanitizers})
endif()
if(DGR_FUZZER)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
