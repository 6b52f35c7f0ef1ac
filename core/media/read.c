/* media: decodes exactly the requested frames. Ref: dataplane 1.3.
 *
 * Decoding starts at the key frame before the first requested frame. If the first decoded frame is
 * later than requested, it starts again 1, 2, 4, ... key frames earlier, and finally at the start
 * of the file. Each attempt opens the file again. Licence: Apache-2.0 */
#include "media/room.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef enum outcome {
    DONE,
    LATE,    // the first decoded frame is later than the first requested one
    HOLE,    // a requested frame is missing, or the file ended early
    DAMAGED, // decode errors
    FAILED,  // error record and fault are set
} outcome;

typedef struct reading {
    mr_media_worker *w;
    const mr_clip_request *req;
    const mr_clip_info *info;
    uint8_t *out;
    mr_fault *fault;
    mr_status st;
    media_clip clip;
    bool by_count, by_time; // else frames are numbered by timestamp
    double per_tick;        // frames per time base unit
    int64_t from_pts;       // the key frame of this attempt
    bool unsure;            // only the first decoded frame shows whether it is a key frame
    bool waits;             // from the start of the file: skip to a packet with which decoding can
                            // start
    int64_t counted;        // frames decoded in this attempt
    int64_t end_ns;         // the deadline of all attempts
    int32_t done;           // requested frames that are written
    bool held;              // w->held has the frame displayed last (by time)
    bool watches;           // look at all frames, return none
    float *change;          // if it watches: [frames], or NULL
    media_prints *prints;   // if it checks key frames: of all frames, or NULL
    bool *none;             // and [n_keys]: decoding cannot start there
    int32_t probes;         // frames left to compare with `prints`; 0: record prints
    bool differs;
    char damage[160];
} reading;

static int64_t wanted(const reading *r, int32_t i)
{
    const mr_clip_request *q = r->req;
    return mr_clip_frame(q->start, q->step, q->spread, q->frames, i);
}

// the position of a timestamp, in frames from the first one
static double position(const reading *r, int64_t pts)
{
    return (double)(pts - r->info->first_pts) * r->per_tick;
}

static mr_status hand_out(reading *r, const AVFrame *f)
{
    if (r->watches)
        return r->change ? media_change(r->w, f, r->done == 0, &r->change[r->done]) : MR_OK;
    size_t one = (size_t)r->req->height * (size_t)r->req->width * 3;
    AVRational sar = {r->info->sar_num, r->info->sar_den};
    return media_scale(r->w, f, r->clip.codec->codec_id, sar, r->info->orient, r->req->filter,
                       r->req->height, r->req->width, r->out + (size_t)r->done * one);
}

static outcome put(reading *r, const AVFrame *f)
{
    r->st = hand_out(r, f);
    if (r->st != MR_OK) {
        *r->fault = r->st == MR_E_DECODE ? MR_FAULT_GEOMETRY : MR_FAULT_NONE;
        mr_fail_note("%s", r->req->path);
        return FAILED;
    }
    r->done++;
    return DONE;
}

// by time, the frame displayed at a time is the last one that began at or before it
static outcome take_by_time(reading *r, AVFrame *f, double at)
{
    // allow a hundredth of a frame for rounded timestamps
    while (r->done < r->req->frames && at > (double)wanted(r, r->done) + 0.01) {
        if (!r->held)
            return LATE;
        outcome o = put(r, r->w->held);
        if (o != DONE)
            return o;
    }
    av_frame_unref(r->w->held);
    av_frame_move_ref(r->w->held, f);
    r->held = true;
    return DONE;
}

// compare some frames after a key frame with those of a decode from the start
static outcome compare(reading *r, int64_t pts, const AVFrame *f)
{
    if (pts < r->from_pts)
        return DONE;
    r->differs = !media_prints_has(r->prints, pts, f);
    if (r->differs || !--r->probes)
        r->done = r->req->frames;
    return DONE;
}

static outcome take(reading *r, AVFrame *f)
{
    int64_t n = r->counted++;
    // the first packet may not have been a key frame
    if (n == 0 && r->unsure && media_frame_builds(r->clip.codec->codec_id, f))
        return LATE;
    int64_t pts = f->pts != AV_NOPTS_VALUE ? f->pts : f->best_effort_timestamp;
    // damage of frames that were not requested counts, too, since requested ones depend on them;
    // frames displayed before the key frame can lack their references
    if ((f->decode_error_flags || f->flags & AV_FRAME_FLAG_CORRUPT) &&
        (r->by_count || pts >= r->from_pts)) {
        snprintf(r->damage, sizeof r->damage,
                 "decode errors in frame %lld or before it (flags %#x)",
                 (long long)wanted(r, r->done), (unsigned)f->decode_error_flags);
        return DAMAGED;
    }
    if (r->probes)
        return compare(r, pts, f);
    if (r->prints && (r->st = media_prints_add(r->prints, pts, f)) != MR_OK)
        return FAILED;
    if (!r->by_count) {
        if (pts == AV_NOPTS_VALUE)
            return HOLE;
        if (r->by_time)
            return take_by_time(r, f, position(r, pts));
        n = llround(position(r, pts));
    }
    int64_t want = wanted(r, r->done);
    if (n > want)
        return r->done || r->by_count ? HOLE : LATE;
    return n == want ? put(r, f) : DONE;
}

static outcome fail(reading *r, mr_fault fault, int err, const char *verb)
{
    r->st = media_clip_fail(&r->clip, fault, err, verb, r->fault);
    return FAILED;
}

// whether the decoder can skip the frame of this packet if no other refers to it
static bool is_spare(const reading *r, const AVPacket *p)
{
    if (r->by_count || r->by_time || p->pts == AV_NOPTS_VALUE ||
        r->info->flags & MR_CLIP_INTERLACED)
        return false;
    int64_t n = llround(position(r, p->pts)) - r->req->start;
    if (r->req->spread)
        return n < 0 || n > r->req->spread;
    return n < 0 || n % r->req->step || n / r->req->step >= r->req->frames;
}

// record that the packet of a marked key frame depends on earlier frames
static void judge(reading *r, const AVPacket *p)
{
    const mr_clip_info *i = r->info;
    if (!i->n_keys || media_packet_start(r->clip.stream->codecpar, p) != MEDIA_BUILDS)
        return;
    const int64_t *key =
        bsearch(&p->pts, i->key_pts, (size_t)i->n_keys, sizeof p->pts, media_ascending);
    if (key)
        r->none[key - i->key_pts] = true;
}

static outcome receive(reading *r, int *idle)
{
    for (;;) {
        int err = avcodec_receive_frame(r->clip.codec, r->w->frame);
        if (err == AVERROR(EAGAIN) || err == AVERROR_EOF)
            return DONE;
        if (err < 0) {
            if (err == AVERROR(ENOMEM))
                return fail(r, MR_FAULT_CORRUPT, err, "decode");
            snprintf(r->damage, sizeof r->damage, "the decoder failed near frame %lld",
                     (long long)wanted(r, r->done));
            return DAMAGED;
        }
        *idle = 0;
        outcome o = take(r, r->w->frame);
        av_frame_unref(r->w->frame);
        if (o != DONE || r->done == r->req->frames)
            return o;
    }
}

/* Decode from the current position until all requested frames are written. `has`: the first packet
 * is read already. */
static outcome decode(reading *r, bool has, int64_t most_frames)
{
    AVPacket *p = r->w->packet;
    AVCodecContext *codec = r->clip.codec;
    for (int idle = 0;; has = false) {
        int got = has ? 1 : media_clip_packet(&r->clip, p);
        if (got < 0)
            return fail(r, MR_FAULT_CORRUPT, got, "read its packets");
        bool torn = got && p->flags & AV_PKT_FLAG_CORRUPT;
        if (torn && r->counted) {
            av_packet_unref(p);
            snprintf(r->damage, sizeof r->damage, "a corrupt packet near frame %lld",
                     (long long)wanted(r, r->done));
            return DAMAGED;
        }
        r->waits &= got && media_packet_start(r->clip.stream->codecpar, p) == MEDIA_BUILDS;
        if (r->waits) {
            av_packet_unref(p);
            if (r->by_count)
                return HOLE;
            continue;
        }
        if (got && r->none && !r->probes)
            judge(r, p);
        codec->skip_frame = got && is_spare(r, p) ? AVDISCARD_NONREF : AVDISCARD_DEFAULT;
        int err = avcodec_send_packet(codec, got ? p : NULL);
        av_packet_unref(p);
        if (err == AVERROR(ENOMEM))
            return fail(r, MR_FAULT_CORRUPT, err, "decode");
        if (err < 0 && err != AVERROR_EOF) {
            snprintf(r->damage, sizeof r->damage, "the decoder refused a packet near frame %lld",
                     (long long)wanted(r, r->done));
            // before the first frame, the stream can start in the middle: the frames decide
            if (r->counted)
                return DAMAGED;
        }
        idle++;
        outcome o = receive(r, &idle);
        if (o != DONE || r->done == r->req->frames)
            return o;
        if (!got)
            break;
        if (idle > 600)
            return fail(r, MR_FAULT_STALL, 0, "decode: 600 packets without a frame");
        if (r->counted > most_frames)
            return fail(r, MR_FAULT_STALL, 0,
                        "decode: more frames came out than precede the requested ones");
        if (media_file_over(&r->clip.file))
            return fail(r, MR_FAULT_STALL, 0, "decode in time");
    }
    // the last frame is displayed to the end
    if (r->by_time && r->held)
        while (r->done < r->req->frames && wanted(r, r->done) < r->info->frames) {
            outcome o = put(r, r->w->held);
            if (o != DONE)
                return o;
        }
    return r->done == r->req->frames ? DONE : HOLE;
}

// Read up to the packet with which decoding can start, at most to the key frame at `pts`.
static outcome find_start(reading *r, int64_t pts)
{
    AVPacket *p = r->w->packet;
    for (;;) {
        int got = media_clip_packet(&r->clip, p);
        if (got < 0)
            return fail(r, MR_FAULT_CORRUPT, got, "read its packets");
        media_start start = got ? media_packet_start(r->clip.stream->codecpar, p) : MEDIA_BUILDS;
        int64_t at = p->pts != AV_NOPTS_VALUE ? p->pts : p->dts;
        r->unsure = start == MEDIA_UNSURE;
        // for codecs that begin.c does not know, trust the container
        if (got && (r->unsure || (start == MEDIA_BEGINS && at <= pts))) {
            r->from_pts = MR_MIN(pts, at);
            return DONE;
        }
        av_packet_unref(p);
        // in every codec, frames after a key frame are decoded after it
        if (!got || at == AV_NOPTS_VALUE || at >= pts)
            return LATE;
    }
}

// Read the packet to start with into w->packet: that of the key frame at `pts`, or an earlier one.
// A seek goes too far if the container marks every frame as key frame, or has no index. Then search
// its packets from 4, 16, 64, ... frames before.
static outcome go_to(reading *r, int64_t pts)
{
    enum { BACK_MOST = 4096 };
    for (int back = 0; back <= BACK_MOST; back = back ? back * 4 : 4) {
        int64_t ts = pts - (int64_t)(back / r->per_tick);
        if (avformat_seek_file(r->clip.demux, r->clip.stream->index, INT64_MIN, ts, ts, 0) < 0)
            return back ? HOLE : LATE;
        outcome o = find_start(r, pts);
        if (o != LATE)
            return o;
    }
    return HOLE;
}

// one attempt from key frame number `key`, or with -1 from the start of the file
static outcome attempt(reading *r, int32_t key)
{
    r->counted = 0, r->done = 0, r->held = r->unsure = false, r->damage[0] = 0;
    av_frame_unref(r->w->held);
    media_log_clear();
    double left_s = (double)(r->end_ns - mr_clock_table()->monotonic_ns()) * 1e-9;
    r->st = media_clip_open(&r->clip, r->req->path, fmax(left_s, 1e-3), r->info->reorder, r->fault);
    if (r->st != MR_OK)
        return FAILED;
    int64_t first = 0;
    r->from_pts = INT64_MIN;
    // a file cut from a longer one can begin with frames whose references are missing
    r->waits = key < 0 && media_needs_start(r->clip.stream->codecpar->codec_id);
    if (key >= 0) {
        outcome o = go_to(r, r->info->key_pts[key]);
        if (o != DONE)
            return o;
        first = (int64_t)position(r, r->from_pts);
    }
    // the number of frames before a part of a file is unknown
    if (key < 0 && r->info->flags & MR_CLIP_PART)
        return decode(r, false, INT64_MAX);
    return decode(r, key >= 0,
                  wanted(r, r->req->frames - 1) - first + 64 + 600 * (r->by_time || r->by_count));
}

static mr_status conclude(reading *r, outcome o)
{
    // an interrupted read looks like a truncated file, but is no fault of the clip
    if (r->clip.file.stopped)
        return media_clip_fail(&r->clip, MR_FAULT_NONE, 0, "read", r->fault);
    if (o == DONE)
        return MR_OK;
    if (o == FAILED)
        return r->st;
    const char *path = r->req->path, *log = media_log_text();
    if (o == DAMAGED || r->damage[0]) {
        *r->fault = MR_FAULT_CORRUPT;
        return mr_fail(MR_E_DECODE, "%s: corrupt: %s%s%s", path, r->damage, *log ? "; " : "", log);
    }
    *r->fault = r->by_count ? MR_FAULT_NO_PTS : MR_FAULT_SEEK;
    return mr_fail(MR_E_DECODE, "%s: %s: frame %lld did not come out of the decoder%s%s", path,
                   mr_fault_name(*r->fault), (long long)wanted(r, r->done), *log ? "; " : "", log);
}

static mr_status check_request(const mr_clip_request *q, mr_fault *fault)
{
    const mr_clip_info *info = q->info;
    // the scaler writes past the end of rows shorter than half of its vectors
    if (q->frames < 1 || q->step < 1 || q->spread < 0 || q->start < 0 ||
        q->height < MR_CLIP_SIDE_MIN || q->width < MR_CLIP_SIDE_MIN)
        return mr_fail(MR_E_USAGE,
                       "%s: %d frames from %lld, step %d, at %d x %d; expected positive numbers "
                       "and at least %d pixels a side",
                       q->path, q->frames, (long long)q->start, q->step, q->height, q->width,
                       MR_CLIP_SIDE_MIN);
    int64_t last = mr_clip_frame(q->start, q->step, q->spread, q->frames, q->frames - 1);
    if (last >= info->frames) {
        *fault = MR_FAULT_SHORT;
        return mr_fail(MR_E_RANGE, "%s: short: frame %lld was requested, the file has %lld",
                       q->path, (long long)last, (long long)info->frames);
    }
    if (info->flags & MR_CLIP_HDR) {
        *fault = MR_FAULT_HDR;
        return mr_fail(
            MR_E_DECODE,
            "%s: hdr: transfer %d (PQ or HLG) is not mapped to RGB; try: convert the clip first",
            q->path, info->transfer);
    }
    return MR_OK;
}

// Whether one of the lists of key frames contains the other, from the first to the last of `a`. An
// older index can have more key frames; one with checked key frames can have fewer.
static bool same_keys(const mr_clip_info *a, const mr_clip_info *now)
{
    int32_t both = 0, at = 0, before = 0, end = 0;
    for (int32_t k = 0; k < now->n_keys && a->n_keys; k++) {
        before += now->key_pts[k] < a->key_pts[0];
        end += now->key_pts[k] <= a->key_pts[a->n_keys - 1];
        while (at < a->n_keys && a->key_pts[at] < now->key_pts[k])
            at++;
        both += at < a->n_keys && a->key_pts[at] == now->key_pts[k];
    }
    return both == MR_MIN(a->n_keys, end - before);
}

// Whether `a` is the result of a scan of the file, or a part of it.
static bool same_clip(const mr_clip_info *a, const mr_clip_info *now)
{
    bool as_long = a->flags & MR_CLIP_PART
                       ? a->first_pts >= now->first_pts
                       : a->frames == now->frames && a->first_pts == now->first_pts;
    return as_long && strcmp(a->codec, now->codec) == 0 && a->width == now->width &&
           a->height == now->height && same_keys(a, now);
}

// Check that the file is still that of the index. Network file systems round times, and copies have
// new ones. So a file of the same size with another time is scanned again, and its packets decide.
static mr_status check_fresh(mr_media_worker *w, const mr_clip_request *q, mr_fault *fault)
{
    const mr_clip_info *info = q->info;
    struct stat about;
    if (!info->bytes || stat(q->path, &about))
        return MR_OK;
    bool same = (uint64_t)about.st_size == info->bytes;
    if (same && about.st_mtim.tv_sec != info->mtime_ns / 1000000000) {
        mr_clip_info now;
        mr_status st = media_scan(w, q->path, q->deadline_s, &now, fault);
        // a file that cannot be decoded any more has changed; report other failures
        if (st != MR_OK && st != MR_E_DECODE)
            return st;
        same = st == MR_OK && same_clip(info, &now);
        if (st == MR_OK)
            mr_clip_info_fini(&now);
    }
    if (same)
        return MR_OK;
    *fault = MR_FAULT_STALE;
    return mr_fail(MR_E_DECODE,
                   "%s: stale: the file changed after it was indexed; try: ingest again", q->path);
}

static mr_status prepare(reading *r)
{
    const mr_clip_info *info = r->info = r->req->info;
    *r->fault = MR_FAULT_NONE;
    MR_TRY(check_request(r->req, r->fault));
    MR_TRY(check_fresh(r->w, r->req, r->fault));
    r->clip.file.fd = -1;
    r->by_count = info->flags & (MR_CLIP_NO_PTS | MR_CLIP_IMAGE) ||
                  (info->frames == 1 && !(info->flags & MR_CLIP_PART));
    r->by_time = info->flags & MR_CLIP_VFR;
    if (!r->by_count)
        r->per_tick = (double)info->tb_num / info->tb_den * info->rate_num / info->rate_den;
    r->end_ns = mr_clock_table()->monotonic_ns() +
                (int64_t)((r->req->deadline_s > 0 ? r->req->deadline_s : 60) * 1e9);
    return MR_OK;
}

static void tidy(mr_media_worker *w)
{
    av_packet_unref(w->packet);
    av_frame_unref(w->frame);
    av_frame_unref(w->held);
}

static mr_status run(reading *r)
{
    MR_TRY(prepare(r));
    const mr_clip_info *info = r->info;
    // the last key frame not after the first requested frame; the first of the file needs no seek
    int32_t key = -1, back = 1;
    if (!r->by_count)
        while (key + 1 < info->n_keys && position(r, info->key_pts[key + 1]) <=
                                             (double)r->req->start + 0.01 + 0.4 * !r->by_time)
            key++;
    if (key == 0)
        key = -1;
    outcome o;
    for (;;) {
        o = attempt(r, key);
        media_clip_close(&r->clip);
        if (o == DONE || o == FAILED || key < 0 || r->clip.file.stopped)
            break;
        // too late: go further back; check other outcomes again from the start
        key = o == LATE ? key - back : -1;
        back *= 2;
        if (key < 1)
            key = -1;
    }
    mr_status st = conclude(r, o);
    tidy(r->w);
    return st;
}

mr_status media_read(mr_media_worker *w, const mr_clip_request *req, uint8_t *out, mr_fault *fault)
{
    return run(&(reading){.w = w, .req = req, .out = out, .fault = fault});
}

// After a decode from the start: decode from each key frame, and remove those from the list that
// give other frames.
static mr_status check_keys(reading *r, mr_clip_info *info)
{
    enum { PROBES = 3 };
    int32_t kept = 0;
    mr_status st = MR_OK;
    for (int32_t k = 0; k < info->n_keys; k++) {
        // the decode from the start began with the first key frame
        if (k && !r->none[k] && st == MR_OK) {
            r->probes = PROBES, r->differs = false;
            outcome o = attempt(r, k);
            media_clip_close(&r->clip);
            tidy(r->w);
            if (o == FAILED || r->clip.file.stopped)
                st = conclude(r, o);
            r->none[k] = r->differs || (o == LATE && r->unsure);
        }
    }
    for (int32_t k = 0; k < info->n_keys && st == MR_OK; k++)
        if (!r->none[k])
            info->key_pts[kept++] = info->key_pts[k];
    if (st == MR_OK)
        info->n_keys = kept;
    return st;
}

mr_status media_watch(mr_media_worker *w, const char *path, mr_clip_info *info, double deadline_s,
                      float *change, mr_fault *fault)
{
    if (info->frames > INT32_MAX) {
        *fault = MR_FAULT_GEOMETRY;
        return mr_fail(MR_E_DECODE, "%s: geometry: %lld frames; expected at most %d", path,
                       (long long)info->frames, INT32_MAX);
    }
    const mr_clip_request all = {.path = path,
                                 .info = info,
                                 .step = 1,
                                 .frames = (int32_t)info->frames,
                                 .height = MR_CLIP_SIDE_MIN,
                                 .width = MR_CLIP_SIDE_MIN,
                                 .deadline_s = deadline_s};
    reading r = {.w = w, .req = &all, .fault = fault, .watches = true, .change = change};
    const AVCodecDescriptor *codec = avcodec_descriptor_get_by_name(info->codec);
    if (change || !info->n_keys || info->flags & MR_CLIP_NO_PTS || !codec ||
        media_stands_alone(codec->id))
        return run(&r);
    media_prints prints = {0};
    size_t bytes = sizeof *r.none * (size_t)info->n_keys;
    r.prints = &prints;
    mr_status st = (r.none = mr_calloc(bytes, 1)) ? run(&r) : mr_fail_memory(bytes);
    if (st == MR_OK)
        st = check_keys(&r, info);
    mr_free(r.none);
    mr_free(prints.of);
    return st;
}
