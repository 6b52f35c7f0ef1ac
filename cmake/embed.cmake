# Write OUT: every .lua below lua, recipes, machines and datasets of ROOT, and core/bench/*.py, as rows of mr_embedded[]
# (path, bytes). The assembler reads the bytes, so that neither CMake nor the compiler has to.
file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/lua/*.lua ${ROOT}/recipes/*.lua ${ROOT}/machines/*.lua
  ${ROOT}/datasets/*.lua ${ROOT}/core/bench/*.py)
list(SORT files)
set(text "/* Made from the files it names by cmake/embed.cmake. */\n#include \"app/room.h\"\n")
set(rows "")
set(i 0)
foreach(f IN LISTS files)
  file(SIZE ${ROOT}/${f} size)
  string(APPEND text "extern const unsigned char file_${i}[] __attribute__((visibility(\"hidden\")));\n"
    "__asm__(\".pushsection .rodata\\nfile_${i}: .incbin \\\"${ROOT}/${f}\\\"\\n.byte 0\\n.popsection\");\n")
  string(APPEND rows "    {\"${f}\", file_${i}, ${size}},\n")
  math(EXPR i "${i} + 1")
endforeach()
string(APPEND text "const mr_embedded_file mr_embedded[] = {\n${rows}    {0, 0, 0}\n};\n")
file(WRITE ${OUT} "${text}")
