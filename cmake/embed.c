/* embed ROOT OUT FILE...: write OUT, C source with the table mr_embedded of core/app/room.h, in
 * which each FILE (a path below ROOT) has its bytes. Modules of lua/ also have their bytecode, in
 * OUT.code, so that the program need not compile 200 of them at each start (30 ms). The assembler
 * reads all bytes, so that the compiler does not have to. Licence: Apache-2.0 */
#include <errno.h>
#include <lauxlib.h>
#include <lua.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int add(lua_State *L, const void *part, size_t n, void *out)
{
    (void)L;
    return fwrite(part, 1, n, out) != n;
}

static void fail(const char *what)
{
    fprintf(stderr, "embed: %s\n", what);
    exit(1);
}

static void fail_file(const char *path)
{
    fprintf(stderr, "embed: %s: %s\n", path, strerror(errno));
    exit(1);
}

/* Append the bytecode of a module, with its lines; answers its size. */
static long compile(lua_State *L, const char *full, const char *path, FILE *code)
{
    const long from = ftell(code);
    // names of chunks as core/app/main.c gives them
    const char *name = lua_pushfstring(L, "@%s", path + strlen("lua/"));
    luaL_Buffer text;
    FILE *f = fopen(full, "rb");
    if (!f)
        fail_file(full);
    luaL_buffinit(L, &text);
    for (size_t n = LUAL_BUFFERSIZE; n == LUAL_BUFFERSIZE;) {
        n = fread(luaL_prepbuffer(&text), 1, LUAL_BUFFERSIZE, f);
        luaL_addsize(&text, n);
    }
    luaL_pushresult(&text);
    fclose(f);
    size_t n;
    const char *bytes = lua_tolstring(L, -1, &n);
    if (luaL_loadbufferx(L, bytes, n, name, "t") != LUA_OK)
        fail(lua_pushfstring(L, "lua/%s", lua_tostring(L, -1)));
    if (lua_dump(L, add, code, 0))
        fail_file("bytecode");
    lua_settop(L, 0);
    return ftell(code) - from;
}

static void declare(FILE *out, const char *name, int i)
{
    fprintf(out, "extern const unsigned char %s%d[] __attribute__((visibility(\"hidden\")));\n",
            name, i);
}

int main(int argc, char **argv)
{
    char path[4096];
    struct stat about;
    lua_State *L = luaL_newstate();
    if (argc < 4 || !L)
        fail("expected ROOT OUT FILE...");
    const char *root = argv[1];
    FILE *out = fopen(argv[2], "w");
    snprintf(path, sizeof path, "%s.code", argv[2]);
    FILE *code = fopen(path, "wb");
    if (!out || !code)
        fail_file(argv[2]);
    long *sizes = calloc((size_t)argc, sizeof *sizes), at = 0;
    fprintf(out, "/* Made from the files it names by cmake/embed.c. */\n#include \"app/room.h\"\n");
    for (int i = 3; i < argc; i++) {
        snprintf(path, sizeof path, "%s/%s", root, argv[i]);
        declare(out, "file_", i);
        fprintf(out,
                "__asm__(\".pushsection .rodata\\nfile_%d: .incbin \\\"%s\\\"\\n.byte 0\\n"
                ".popsection\");\n",
                i, path);
        if (strncmp(argv[i], "lua/", 4) != 0)
            continue;
        sizes[i] = compile(L, path, argv[i], code);
        declare(out, "code_", i);
        fprintf(out,
                "__asm__(\".pushsection .rodata\\ncode_%d: .incbin \\\"%s.code\\\",%ld,%ld\\n"
                ".popsection\");\n",
                i, argv[2], at, sizes[i]);
        at += sizes[i];
    }
    fprintf(out, "const mr_embedded_file mr_embedded[] = {\n");
    for (int i = 3; i < argc; i++) {
        snprintf(path, sizeof path, "%s/%s", root, argv[i]);
        if (stat(path, &about))
            fail_file(path);
        fprintf(out, "    {\"%s\", file_%d, %lld, ", argv[i], i, (long long)about.st_size);
        if (sizes[i])
            fprintf(out, "code_%d, %ld},\n", i, sizes[i]);
        else
            fprintf(out, "0, 0},\n");
    }
    fprintf(out, "    {0, 0, 0, 0, 0}\n};\nconst char mr_embedded_lua[] = \"%s\";\n", LUA_RELEASE);
    if (fclose(out) || fclose(code))
        fail_file(argv[2]);
    return 0;
}
