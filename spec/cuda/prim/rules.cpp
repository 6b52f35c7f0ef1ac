/* cuda: rules for every kernel file. Only two headers contain asm, shared memory is dynamic,
 * launches use one macro, and a kernel file has the name of an op file. Covers:
 * cuda/prim/kernel.cuh */
#include "check.h"
#include <fstream>
#include <glob.h>
#include <regex>
#include <string>
#include <vector>

static std::vector<std::string> files(const char *pattern)
{
    std::vector<std::string> found;
    glob_t g;
    if (glob(pattern, 0, NULL, &g) == 0)
        found.assign(g.gl_pathv, g.gl_pathv + g.gl_pathc);
    globfree(&g);
    return found;
}

// "12: text" of the first line outside comments that matches the pattern, or ""
static std::string offence(const std::vector<std::string> &lines, const char *pattern)
{
    std::regex wanted(pattern);
    bool comment = false;
    for (size_t i = 0; i < lines.size(); i++) {
        std::string line = lines[i].substr(0, lines[i].find("//"));
        size_t begin = line.find("/*");
        if (begin != std::string::npos)
            comment = true;
        bool end = line.find("*/") != std::string::npos;
        if (!comment && std::regex_search(line, wanted))
            return std::to_string(i + 1) + ": " + lines[i];
        if (end)
            comment = false;
    }
    return "";
}

static std::vector<std::string> lines_of(const std::string &path)
{
    std::vector<std::string> lines;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);)
        lines.push_back(line);
    return lines;
}

static bool ends(const std::string &s, const std::string &tail)
{
    return s.size() >= tail.size() && s.compare(s.size() - tail.size(), tail.size(), tail) == 0;
}

static const char ASM[] = "\\basm\\b|\\bMR_PTX\\b", STATIC_SHARED[] = "__shared__",
                  LAUNCH[] = "<<<";

static void keeps(const std::string &path)
{
    std::vector<std::string> lines = lines_of(path);
    CHECK(!lines.empty());
    bool words = ends(path, "prim/kernel.cuh");
    bool ptx = words || ends(path, "prim/sm80.cuh") || ends(path, "prim/sm90a.cuh");
    if (!ptx && !CHECK_STR(offence(lines, ASM).c_str(), ""))
        printf("  %s: only cuda/prim/sm80.cuh and sm90a.cuh may contain PTX\n", path.c_str());
    if (!words && !CHECK_STR(offence(lines, STATIC_SHARED).c_str(), ""))
        printf("  %s: shared memory is dynamic, by MR_SHARED\n", path.c_str());
    if (!words && !CHECK_STR(offence(lines, LAUNCH).c_str(), ""))
        printf("  %s: a launch is MR_LAUNCH\n", path.c_str());
}

int main(void)
{
    // the search finds violations, but not in comments
    CHECK_STR(offence({"int a;", "  asm(\"nop\");"}, ASM).c_str(), "2:   asm(\"nop\");");
    CHECK_STR(offence({"/* asm", " asm */", "// asm"}, ASM).c_str(), "");
    CHECK_STR(offence({"__shared__ float x[32];"}, STATIC_SHARED).c_str(),
              "1: __shared__ float x[32];");
    CHECK_STR(offence({"k<<<1, 2>>>();"}, LAUNCH).c_str(), "1: k<<<1, 2>>>();");

    int n = 0;
    for (const char *pattern : {"cuda/*/*.cu", "cuda/*/*.cuh", "cuda/*/*.h", "spec/cuda/*/*.cu"})
        for (const std::string &path : files(pattern)) {
            keeps(path);
            n++;
        }
    CHECK(n > 4);
    // a kernel file has the name of an op file; spec/cuda/kernels/contract.cpp runs its ops
    for (const std::string &path : files("cuda/kernels/*.cu")) {
        std::string name = path.substr(path.rfind('/') + 1);
        if (!CHECK(!lines_of("core/op/" + name.substr(0, name.size() - 3) + ".c").empty()))
            printf("  %s\n", path.c_str());
    }
    return check_done();
}
