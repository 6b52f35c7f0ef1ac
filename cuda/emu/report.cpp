// Error reports as text: which thread, where, actual and expected.
#include "room.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <set>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

namespace emu
{

static std::vector<std::string> found;
static std::set<std::string> places; // one report per place and format

const std::vector<std::string> &reports()
{
    return found;
}

void forget_reports()
{
    found.clear();
    places.clear();
}

// Is this a line of a kernel, and not of the emulator, cuda/prim or the C++ library?
static bool of_kernel(const std::string &line)
{
    if (line.find("spec/cuda/") != std::string::npos)
        return true;
    for (const char *other : {"??", "cuda/emu/", "cuda/prim/", "/c++/", "/include/"})
        if (line.find(other) != std::string::npos)
            return false;
    return line.find(':') != std::string::npos;
}

// find the shared object that contains an address; false if there is no such object
static bool object_of(const void *at, Dl_info *info)
{
    return dladdr(at, info) && info->dli_fname;
}

// the address within the object's file: programs linked at a fixed address keep theirs
static uintptr_t in_file(const void *at, const Dl_info &object)
{
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)object.dli_fbase;
    return (uintptr_t)at - (head->e_type == ET_EXEC ? 0 : (uintptr_t)object.dli_fbase);
}

// "file.cu:12" of the innermost kernel line on this stack, or "" if it is unknown
static std::string kernel_line()
{
    static std::map<std::string, std::string> known;
    void *frames[16];
    Dl_info own, object;
    int n = backtrace(frames, 16);
    if (!object_of((const void *)kernel_line, &own))
        return "";
    bool program = ((const ElfW(Ehdr) *)own.dli_fbase)->e_type == ET_EXEC;
    std::string command =
        "addr2line -i -e '" +
        (program ? "/proc/" + std::to_string(getpid()) + "/exe" : std::string(own.dli_fname)) + "'";
    for (int i = 1; i < n; i++) {
        char address[32];
        if (!object_of(frames[i], &object) || object.dli_fbase != own.dli_fbase)
            continue;
        snprintf(address, sizeof address, " %lx", (unsigned long)in_file(frames[i], object) - 1);
        command += address;
    }
    auto hit = known.find(command);
    if (hit != known.end())
        return hit->second;
    std::string place;
    FILE *out = popen((command + " 2>/dev/null").c_str(), "r");
    char line[1024];
    while (out && fgets(line, sizeof line, out)) {
        std::string text(line);
        if (place.empty() && of_kernel(text))
            place =
                text.substr(text.rfind('/') + 1, text.find_first_of(" \n") - text.rfind('/') - 1);
    }
    if (out)
        pclose(out);
    return known[command] = place;
}

static void add(const std::string &place, const char *text)
{
    char head[256];
    snprintf(head, sizeof head,
             "%s: block (%u,%u,%u) thread %u%s%s: ", kernel_name ? kernel_name : "no kernel",
             block_index.x, block_index.y, block_index.z, current ? current->linear : 0,
             place.empty() ? "" : " at ", place.c_str());
    found.push_back(std::string(head) + text);
}

void report(const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    add(current ? kernel_line() : "", text);
}

void report_place(const char *fmt, ...)
{
    void *frames[4];
    backtrace(frames, 4);
    std::string key = fmt;
    for (void *frame : frames)
        key += "@" + std::to_string((uintptr_t)frame);
    if (!places.insert(key).second)
        return;
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    add(kernel_line(), text);
}

} // namespace emu
