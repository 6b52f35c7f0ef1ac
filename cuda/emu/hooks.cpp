// The load and store hooks that g++ calls under -fsanitize=thread, defined here instead of libtsan.
#include "room.h"

static void hook(void *place, void *at, size_t bytes, bool write)
{
    if (emu::current)
        emu::watch({(uintptr_t)place, (uintptr_t)at, bytes, write, false});
}

#define PLACE __builtin_return_address(0)
#define HOOKS(n)                                                                                   \
    void __tsan_read##n(void *at)                                                                  \
    {                                                                                              \
        hook(PLACE, at, n, false);                                                                 \
    }                                                                                              \
    void __tsan_write##n(void *at)                                                                 \
    {                                                                                              \
        hook(PLACE, at, n, true);                                                                  \
    }                                                                                              \
    void __tsan_unaligned_read##n(void *at)                                                        \
    {                                                                                              \
        hook(PLACE, at, n, false);                                                                 \
    }                                                                                              \
    void __tsan_unaligned_write##n(void *at)                                                       \
    {                                                                                              \
        hook(PLACE, at, n, true);                                                                  \
    }

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void *at, unsigned long bytes)
{
    hook(PLACE, at, bytes, false);
}

void __tsan_write_range(void *at, unsigned long bytes)
{
    hook(PLACE, at, bytes, true);
}

// the guard of a static variable in the spec itself
char __tsan_atomic8_load(const volatile char *p, int)
{
    return *p;
}

void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
}
