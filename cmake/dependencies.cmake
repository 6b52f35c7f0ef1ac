# What is linked (versions and reasons: docs/build.md, "What it is built from").
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(LUA REQUIRED IMPORTED_TARGET lua5.4)
pkg_check_modules(FFMPEG REQUIRED IMPORTED_TARGET libavcodec libavformat libavutil libswscale)
pkg_check_modules(LMDB REQUIRED IMPORTED_TARGET lmdb)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(EDIT IMPORTED_TARGET libedit)
pkg_check_modules(MINIZIP IMPORTED_TARGET minizip zlib)
pkg_check_modules(DW IMPORTED_TARGET libdw)
find_package(MPI COMPONENTS C QUIET)
# by header and library: oneDNN's own CMake file asks for OpenCL headers that nothing here uses. OpenMP: what its teams are told by
set(MR_HAVE_ONEDNN FALSE)
if(MR_ONEDNN)
  find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl_version.h)
  find_library(DNNL_LIBRARY dnnl)
  find_package(OpenMP COMPONENTS C)
  if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY AND OpenMP_C_FOUND)
    set(MR_HAVE_ONEDNN TRUE)
    file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h numbers REGEX "VERSION_(MAJOR|MINOR|PATCH) ")
    string(REGEX MATCHALL "[0-9]+" numbers "${numbers}")
    string(REPLACE ";" "." DNNL_VERSION "${numbers}")
    add_library(DNNL::dnnl UNKNOWN IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR}
      INTERFACE_COMPILE_DEFINITIONS MR_HAVE_ONEDNN=1 INTERFACE_LINK_LIBRARIES OpenMP::OpenMP_C)
  endif()
endif()
if(NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl INTERFACE IMPORTED)  # own kernels
endif()

# What may be missing: name, whether it is there, its version (none: a plug-in is linked with it), what one does without,
# what brings it.
set(MR_OPTIONAL_LIBRARIES
  "oneDNN|${MR_HAVE_ONEDNN}|${DNNL_VERSION}|own portable kernels, slower (Debian: libdnnl-dev, and OpenMP)"
  "libedit|${EDIT_FOUND}|${EDIT_VERSION}|the prompt has plain lines, no history keys or completion (Debian: libedit-dev)"
  "minizip|${MINIZIP_FOUND}|${MINIZIP_minizip_VERSION}|.pth and .bin weights cannot be opened (Debian: libminizip-dev)"
  "MPI|${MPI_C_FOUND}||no ranks by mpirun, those of moonreel and torchrun need none (Debian: libopenmpi-dev)"
  "libdw|${DW_FOUND}||stacks of ranks have no native frames (Debian: libdw-dev)")

# found: "Lua 5.4.4,LMDB 0.9.24,...", what the program is linked with, for `moonreel doctor`; missing: one line each.
function(mr_libraries found missing)
  set(there "Lua ${LUA_VERSION}" "LMDB ${LMDB_VERSION}" "xxHash ${XXHASH_VERSION}" "zstd ${ZSTD_VERSION}" "jansson ${JANSSON_VERSION}"
    "utf8proc ${UTF8PROC_VERSION}")
  set(lacks)
  foreach(row IN LISTS MR_OPTIONAL_LIBRARIES)
    string(REPLACE "|" ";" row "${row}")
    list(GET row 0 name)
    list(GET row 1 is_there)
    list(GET row 2 version)
    list(GET row 3 without)
    if(is_there AND version)
      list(APPEND there "${name} ${version}")
    elseif(NOT is_there)
      list(APPEND lacks "${name} missing: ${without}")
    endif()
  endforeach()
  string(REPLACE ";" "," there "${there}")
  set(${found} "${there}" PARENT_SCOPE)
  set(${missing} "${lacks}" PARENT_SCOPE)
endfunction()

function(mr_summary)
  mr_libraries(found missing)
  string(REPLACE "," ", " found "${found}")
  message(STATUS "moonreel ${PROJECT_VERSION}: ${found}, libavcodec ${FFMPEG_libavcodec_VERSION}")
  foreach(line IN LISTS missing)
    message(STATUS "  ${line}")
  endforeach()
endfunction()
