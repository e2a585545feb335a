# Upstream as a lane has built it already: its archives in DGR_LLAMA_BUILD, in the place of its own CMake project.

foreach(name llama ggml ggml-cpu ggml-base)
    string(REGEX REPLACE "^ggml.*" "ggml/" folder "${name}")
    string(REGEX REPLACE "^llama$" "" folder "${folder}")
    set(archive "${DGR_LLAMA_BUILD}/${folder}src/lib${name}.a")
    if(NOT EXISTS "${archive}")
        message(FATAL_ERROR "DGR_LLAMA_BUILD holds no ${archive}; dgr-build lane cpu makes it")
    endif()
    add_library(${name} STATIC IMPORTED GLOBAL)
    set_target_properties(${name} PROPERTIES
        IMPORTED_LOCATION "${archive}"
        INTERFACE_INCLUDE_DIRECTORIES "${DGR_LLAMA_SOURCE}/include;${DGR_LLAMA_SOURCE}/ggml/include")
endforeach()
set_target_properties(llama PROPERTIES INTERFACE_LINK_LIBRARIES ggml)
set_target_properties(ggml PROPERTIES INTERFACE_LINK_LIBRARIES "ggml-cpu;ggml-base;${CMAKE_DL_LIBS}")
set_target_properties(ggml-cpu PROPERTIES INTERFACE_LINK_LIBRARIES ggml-base)
set_target_properties(ggml-base PROPERTIES INTERFACE_LINK_LIBRARIES m)
