/* A library to preload: decoders that misbehave.
 *
 * FAULTY_CODEC  the decoder: vp8, h264, ...; without it nothing happens
 * FAULTY_WAY    crash, loop, exit, kill: what it does with its first packet
 * FAULTY_START  a file: a process that starts to decode takes a byte of it and is killed */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libavcodec/avcodec.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

AVPacket *av_packet_alloc(void)
{
    const char *file = getenv("FAULTY_START");
    struct stat about;
    if (file && stat(file, &about) == 0 && about.st_size > 0 &&
        truncate(file, about.st_size - 1) == 0)
        raise(SIGKILL);
    AVPacket *(*real)(void) = (AVPacket * (*)(void))(uintptr_t)dlsym(RTLD_NEXT, "av_packet_alloc");
    return real();
}

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
