/* stack: reads the stack frames of another process by libdw, from the unwind tables of its files.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "moonreel/stack.h"

#include <elfutils/libdwfl.h>
#include <stdio.h>
#include <string.h>

MR_API mr_stack_entry_fn mr_stack_entry;

typedef struct walk {
    Dwfl *dwfl;
    mr_stack_sink *sink;
    void *user;
    int64_t tid;
    int frames, threads;
} walk;

// use the symbols of the files themselves: libdw must not search elsewhere or over a network
static int no_debug_files(Dwfl_Module *mod, void **user, const char *name, Dwarf_Addr base,
                          const char *file, const char *link, GElf_Word crc, char **out)
{
    (void)mod, (void)user, (void)name, (void)base, (void)file, (void)link, (void)crc, (void)out;
    return -1;
}

static const char *file_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "?";
}

static int one_frame(Dwfl_Frame *frame, void *user)
{
    walk *w = user;
    Dwarf_Addr pc;
    bool exact;
    char text[256];
    if (!dwfl_frame_pc(frame, &pc, &exact) || w->frames++ == MR_STACK_FRAMES)
        return DWARF_CB_ABORT;
    // in a caller, the address is that of the instruction after the call
    Dwfl_Module *module = dwfl_addrmodule(w->dwfl, pc - !exact);
    const char *name = module ? dwfl_module_addrname(module, pc - !exact) : NULL;
    // the offset in a file is the same in all processes; the address is not
    Dwarf_Addr start = 0;
    const char *path =
        module ? dwfl_module_info(module, NULL, &start, NULL, NULL, NULL, NULL, NULL) : NULL;
    if (name)
        snprintf(text, sizeof text, "%s", name);
    else
        snprintf(text, sizeof text, "%s+0x%llx", file_name(path), (unsigned long long)(pc - start));
    w->sink(w->user, w->tid, text);
    return DWARF_CB_OK;
}

static int one_thread(Dwfl_Thread *thread, void *user)
{
    walk *w = user;
    w->tid = dwfl_thread_tid(thread), w->frames = 0;
    // if the unwind tables end or the thread has ended, keep the frames so far
    dwfl_thread_getframes(thread, one_frame, w);
    return ++w->threads < MR_STACK_THREADS ? DWARF_CB_OK : DWARF_CB_ABORT;
}

static mr_status fail(int64_t pid)
{
    return mr_fail(
        MR_E_IO,
        "process %lld: cannot read its stacks: %s; try: as the user of that process or as root",
        (long long)pid, dwfl_errmsg(-1));
}

static mr_status read_stacks(int64_t pid, mr_stack_sink *sink, void *user)
{
    static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf,
                                             .find_debuginfo = no_debug_files};
    walk w = {.dwfl = dwfl_begin(&callbacks), .sink = sink, .user = user};
    if (!w.dwfl)
        return fail(pid);
    mr_status st = MR_OK;
    if (dwfl_linux_proc_report(w.dwfl, (pid_t)pid) != 0 ||
        dwfl_report_end(w.dwfl, NULL, NULL) != 0 ||
        dwfl_linux_proc_attach(w.dwfl, (pid_t)pid, false) != 0 ||
        dwfl_getthreads(w.dwfl, one_thread, &w) < 0)
        st = fail(pid);
    dwfl_end(w.dwfl);
    return st;
}

const mr_stack *mr_stack_entry(void)
{
    static const mr_stack table = {.version = MR_STACK_VERSION, .read = read_stacks};
    return &table;
}
