# How a room, the op room, the media plug-in, the program and a C test become targets.

function(mr_target name)
  target_compile_features(${name} PUBLIC c_std_11)
  set_target_properties(${name} PROPERTIES C_EXTENSIONS OFF C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/core/include PRIVATE ${PROJECT_SOURCE_DIR}/core)
  target_compile_definitions(${name} PRIVATE _POSIX_C_SOURCE=200809L)
  # contraction off: a*b+c rounds the same in every build; kernels ask for fma by name
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -ffp-contract=off -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  if(MR_SANITIZE)
    target_compile_options(${name} PUBLIC -fsanitize=${MR_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${name} PUBLIC -fsanitize=${MR_SANITIZE})
  endif()
endfunction()

# mr_room(data LINK ...): core/data/*.c as an object library mr_data that carries its own objects.
function(mr_room room)
  cmake_parse_arguments(A "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/${room}/*.c)
  add_library(mr_${room} STATIC ${sources})
  mr_target(mr_${room})
  target_link_libraries(mr_${room} PUBLIC ${A_LINK})
endfunction()

# mr_optional(bind PkgConfig::EDIT MR_HAVE_EDIT): a library that a room does without where it is missing.
function(mr_optional room target definition)
  if(TARGET ${target})
    target_compile_definitions(mr_${room} PRIVATE ${definition}=1)
    target_link_libraries(mr_${room} PRIVATE ${target})
  endif()
endfunction()

# mr_precompile(target HEADER): what takes as long to read as a source to compile is read once for all sources.
# Not where ccache compiles: it keeps no object that this went into.
function(mr_precompile target header)
  if(NOT "${CMAKE_C_COMPILER_LAUNCHER} ${CMAKE_C_COMPILER}" MATCHES "ccache")
    target_precompile_headers(${target} PRIVATE ${header})
  endif()
endfunction()

# mr_isa_objects(op core/op): core/op/*.c once per instruction set, as object libraries; rows come from the base
# build. `objects` names what they compile to.
function(mr_isa_objects room dir)
  cmake_parse_arguments(A "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${dir}/*.c)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(flags_avx2 -mavx2 -mfma -mf16c)
    set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  endif()
  set(found "")
  foreach(isa base avx2 avx512)
    add_library(mr_${room}_${isa} OBJECT ${sources})
    mr_target(mr_${room}_${isa})
    target_compile_definitions(mr_${room}_${isa} PRIVATE MR_ISA=${isa} MR_ISA_${isa}=1)
    # no trapping, no errno: without these gcc leaves square roots and comparisons scalar; no numbers change
    target_compile_options(mr_${room}_${isa} PRIVATE -O3 -fno-math-errno -fno-trapping-math ${flags_${isa}})
    target_link_libraries(mr_${room}_${isa} PUBLIC ${A_LINK})
    if(flags_${isa})
      mr_precompile(mr_${room}_${isa} <immintrin.h>)
    endif()
    list(APPEND found $<TARGET_OBJECTS:mr_${room}_${isa}>)
  endforeach()
  set(objects ${found} PARENT_SCOPE)
endfunction()

# What kernels share: core/cpu/*.c, and core/cpu/isa/*.c per instruction set.
function(mr_cpu_room room)
  mr_room(${room} ${ARGN})
  cmake_parse_arguments(A "" "" "LINK" ${ARGN})
  mr_isa_objects(${room} core/${room}/isa LINK ${A_LINK})
  target_sources(mr_${room} PRIVATE ${objects})
endfunction()

# Op definitions, per instruction set. A file core/op/NAME.c is all an op needs: the linker gathers them
# (section mr_ops), so the archive mr_op_defs is linked whole by whoever links mr_op.
function(mr_op_room room)
  cmake_parse_arguments(A "" "" "LINK" ${ARGN})
  mr_isa_objects(${room} core/${room} LINK ${A_LINK})
  add_library(mr_${room}_defs STATIC ${objects})
  add_library(mr_${room} INTERFACE)
  add_dependencies(mr_${room} mr_${room}_defs)
  target_link_libraries(mr_${room} INTERFACE ${A_LINK})
  # as an option of the link, which CMake keeps once however many rooms hand it on
  target_link_options(mr_${room} INTERFACE "LINKER:--whole-archive,$<TARGET_FILE:mr_${room}_defs>,--no-whole-archive")
  set_property(TARGET mr_${room} APPEND PROPERTY INTERFACE_LINK_DEPENDS $<TARGET_FILE:mr_${room}_defs>)
endfunction()

# FFmpeg and MPI live in shared objects that are opened on first use, so the program starts in milliseconds. A plug-in
# whose library is missing is not built.
function(mr_plugin room)
  cmake_parse_arguments(A "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/${room}/*.c)
  if(NOT sources OR NOT TARGET ${A_LINK})
    return()
  endif()
  add_library(moonreel_${room} MODULE ${sources})
  mr_target(moonreel_${room})
  # moonreel's own symbols come from the program that opens the plug-in: one error record, one I/O table
  target_link_libraries(moonreel_${room} PRIVATE ${A_LINK})
  target_compile_definitions(moonreel_${room} PRIVATE MR_PLUGIN=1)
  install(TARGETS moonreel_${room} LIBRARY DESTINATION lib/moonreel)
endfunction()

# The program: main plus the Lua modules, recipes, machines and scripts of datasets, embedded.
function(mr_program name dir)
  cmake_parse_arguments(A "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${dir}/*.c)
  file(GLOB_RECURSE lua CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/lua/*.lua
    ${PROJECT_SOURCE_DIR}/recipes/*.lua ${PROJECT_SOURCE_DIR}/machines/*.lua ${PROJECT_SOURCE_DIR}/datasets/*.lua
    ${PROJECT_SOURCE_DIR}/core/bench/*.py)
  list(SORT lua)
  set(embedded ${CMAKE_BINARY_DIR}/embedded.c)
  add_executable(embed cmake/embed.c)
  set_target_properties(embed PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/CMakeFiles)
  target_link_libraries(embed PRIVATE PkgConfig::LUA)
  add_custom_command(OUTPUT ${embedded} BYPRODUCTS ${embedded}.code
    COMMAND embed ${PROJECT_SOURCE_DIR} ${embedded} ${lua} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} DEPENDS ${lua} VERBATIM)
  # the room with the bindings registers itself by a linker section, so it is linked whole
  add_executable(${name} ${sources} ${embedded})
  mr_target(${name})
  # --version names the commit; looked up at each build, compiled when it is another one
  add_custom_target(${name}_commit BYPRODUCTS ${CMAKE_BINARY_DIR}/commit/commit.h
    COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DOUT=${CMAKE_BINARY_DIR}/commit/commit.h
      -P ${PROJECT_SOURCE_DIR}/cmake/commit.cmake VERBATIM)
  add_dependencies(${name} ${name}_commit)
  target_include_directories(${name} PRIVATE ${CMAKE_BINARY_DIR}/commit)
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON INSTALL_RPATH "$ORIGIN/../lib/moonreel")
  # and so are the rooms whose symbols plug-ins use
  target_link_libraries(${name} PRIVATE -Wl,--whole-archive mr_bind mr_data mr_index mr_tensor mr_base -Wl,--no-whole-archive ${A_LINK})
  install(TARGETS ${name} RUNTIME DESTINATION bin)
endfunction()

# mr_test(data spec/core/data/order.c): one small program, run by ctest as core/data/order. The target specs_data
# builds all those of a room.
function(mr_test room source)
  get_filename_component(stem ${source} NAME_WE)
  add_executable(spec_${room}_${stem} ${source})
  if(NOT TARGET specs_${room})
    add_custom_target(specs_${room})
  endif()
  add_dependencies(specs_${room} spec_${room}_${stem})
  mr_target(spec_${room}_${stem})
  # most specs run for a shorter time than the compiler needs to optimise them; these compute
  if(NOT room MATCHES "^(op|layout)$")
    target_compile_options(spec_${room}_${stem} PRIVATE -O0)
  endif()
  target_include_directories(spec_${room}_${stem} PRIVATE ${PROJECT_SOURCE_DIR}/spec/support)
  if(room MATCHES "^(media|index|data)$")
    # the plug-in takes moonreel's own symbols from the program that opens it
    set_target_properties(spec_${room}_${stem} PROPERTIES ENABLE_EXPORTS ON)
    target_link_libraries(spec_${room}_${stem} PRIVATE -Wl,--whole-archive mr_data mr_index mr_base -Wl,--no-whole-archive)
    add_dependencies(spec_${room}_${stem} moonreel_media)
    # what the plug-in says is compared with what its libraries say
    if(room STREQUAL "media")
      target_link_libraries(spec_${room}_${stem} PRIVATE PkgConfig::FFMPEG)
    endif()
  elseif(room STREQUAL "bind")
    # modules register themselves by a linker section
    target_link_libraries(spec_${room}_${stem} PRIVATE -Wl,--whole-archive mr_bind -Wl,--no-whole-archive)
  else()
    target_link_libraries(spec_${room}_${stem} PRIVATE mr_${room})
  endif()
  if(room STREQUAL "run")
    # what a lost lock does to a writer
    target_link_libraries(spec_${room}_${stem} PRIVATE mr_ckpt)
  endif()
  if(room STREQUAL "graph" OR room STREQUAL "layout")
    # a graph knows rows by name alone; these specs build some
    target_link_libraries(spec_${room}_${stem} PRIVATE mr_op)
  endif()
  add_test(NAME core/${room}/${stem} COMMAND spec_${room}_${stem} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
endfunction()
