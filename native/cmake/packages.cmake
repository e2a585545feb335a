# The C++ packages of the worker, linked statically. Debian's CMake targets of gRPC import shared libraries, so
# its archives are named by pkg-config and linked as one group; parts of the C library stay shared.
#
# Targets: dgr-grpc (gRPC, protobuf, abseil, OpenSSL's libcrypto), dgr-cli11, dgr-spdlog, dgr-gtest.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

function(dgr_static_group target)
    execute_process(
        COMMAND ${PKG_CONFIG_EXECUTABLE} --static --libs-only-l ${ARGN}
        OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_VARIABLE reason)
    if(failed)
        message(FATAL_ERROR "pkg-config does not know ${ARGN}: ${reason}")
    endif()
    separate_arguments(words UNIX_COMMAND "${flags}")
    list(REMOVE_DUPLICATES words)

    set(archives "")
    set(shared "")
    list(TRANSFORM DGR_STATIC_LIBRARIES PREPEND -l OUTPUT_VARIABLE further)
    foreach(word IN LISTS further words)
        if(NOT word MATCHES "^-l(.+)$")
            continue()
        endif()
        set(name ${CMAKE_MATCH_1})
        find_library(DGR_ARCHIVE_${name} NAMES lib${name}.a)
        mark_as_advanced(DGR_ARCHIVE_${name})
        if(DGR_ARCHIVE_${name})
            list(APPEND archives ${DGR_ARCHIVE_${name}})
        else()
            list(APPEND shared ${word})
        endif()
    endforeach()

    add_library(${target} INTERFACE)
    if(APPLE)
        target_link_libraries(${target} INTERFACE ${archives} ${shared} Threads::Threads)
    else()
        # What nothing uses is not to be needed; not every compiler leaves it out by itself.
        target_link_libraries(${target} INTERFACE
            -Wl,--start-group ${archives} -Wl,--end-group
            -Wl,--push-state,--as-needed ${shared} -Wl,--pop-state Threads::Threads)
    endif()
endfunction()

dgr_static_group(dgr-grpc ${DGR_STATIC_PACKAGES})

find_program(DGR_PROTOC protoc REQUIRED)
find_program(DGR_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)

find_path(DGR_CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
add_library(dgr-cli11 INTERFACE)
target_include_directories(dgr-cli11 SYSTEM INTERFACE ${DGR_CLI11_INCLUDE})

# As headers alone: no system has static archives of both, and this way nothing is linked.
find_path(DGR_SPDLOG_INCLUDE spdlog/logger.h REQUIRED)
find_path(DGR_FMT_INCLUDE fmt/format.h REQUIRED)
add_library(dgr-spdlog INTERFACE)
target_include_directories(dgr-spdlog SYSTEM INTERFACE ${DGR_SPDLOG_INCLUDE} ${DGR_FMT_INCLUDE})
target_compile_definitions(dgr-spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)

find_package(GTest REQUIRED)
add_library(dgr-gtest INTERFACE)
target_link_libraries(dgr-gtest INTERFACE GTest::gtest_main)
