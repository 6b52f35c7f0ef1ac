# Write OUT: MR_COMMIT, the commit that ROOT is at, as " (1a2b3c4d)", with "-dirty" where files differ from it; "" where ROOT
# is no checkout of its own. OUT is not touched when it says so already, and nothing is compiled for it.
set(commit "")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${ROOT} rev-parse --show-toplevel OUTPUT_VARIABLE top ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(REAL_PATH ${ROOT} root)
  if(top STREQUAL root)
    execute_process(COMMAND ${GIT} -C ${ROOT} describe --always --dirty --abbrev=8 --exclude=* OUTPUT_VARIABLE commit ERROR_QUIET
      OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  if(commit)
    set(commit " (${commit})")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define MR_COMMIT \"${commit}\"\n")
