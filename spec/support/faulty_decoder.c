/* A library to preload: decoders that misbehave.
 *
 * FAULTY_CODEC  the decoder: vp8, h264, ...; without it nothing happens
 * FAULTY_WAY    crash, loop, exit, kill: what it does with its first packet */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libavcodec/avcodec.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int avcodec_send_packet(AVCodecContext *c, const AVPacket *packet)
{
    const char *codec = getenv("FAULTY_CODEC"), *way = getenv("FAULTY_WAY");
    if (codec && way && strcmp(c->codec->name, codec) == 0) {
        if (strcmp(way, "crash") == 0)
            raise(SIGSEGV);
        if (strcmp(way, "kill") == 0)
            raise(SIGKILL);
        if (strcmp(way, "exit") == 0)
            _exit(3);
        while (strcmp(way, "loop") == 0)
            ;
    }
    int (*real)(AVCodecContext *, const AVPacket *) = (int (*)(AVCodecContext *, const AVPacket *))(
        uintptr_t)dlsym(RTLD_NEXT, "avcodec_send_packet");
    return real(c, packet);
}
