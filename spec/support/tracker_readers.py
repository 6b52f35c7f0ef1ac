"""What TensorBoard's and W&B's own readers find in a run, as JSON: tracker_readers.py tensorboard|server|wandb FOLDER.
Exit 77: they are not installed. W&B's log is read by its DataStore (up to 0.25), else by its message classes alone."""
import glob, json, math, os, struct, sys, time, urllib.parse, urllib.request, zlib


def plain(x):
    return x if not isinstance(x, float) or math.isfinite(x) else repr(x)


def numbers(h):
    return h.min, h.max, h.num, h.sum, h.sum_squares, list(h.bucket_limit), list(h.bucket)


def tensorboard(folder):
    from tensorboard.backend.event_processing import event_accumulator as ea
    run = ea.EventAccumulator(folder, size_guidance={ea.SCALARS: 0, ea.IMAGES: 0, ea.TENSORS: 0, ea.HISTOGRAMS: 0})
    run.Reload()
    tags = run.Tags()
    images = {k: [[e.step, e.width, e.height, e.encoded_image_string[:3].decode("latin1")] for e in run.Images(k)]
              for k in tags["images"]}
    return {"scalars": {k: [[e.step, plain(e.value)] for e in run.Scalars(k)] for k in tags["scalars"]},
            "histograms": {k: [[e.step, *numbers(e.histogram_value)] for e in run.Histograms(k)]
                           for k in tags["histograms"]},
            "texts": tags["tensors"], "images": images}


def server(folder):
    """What a browser gets of TensorBoard's server, on loopback."""
    from tensorboard import program
    board, all_of = program.TensorBoard(), "scalars={0},images={0},text={0}".format(1 << 20)
    board.configure(argv=[None, "--logdir", folder, "--host", "127.0.0.1", "--port", "0",
                          "--load_fast", "false", "--samples_per_plugin", all_of, "--reload_interval", "1"])
    address = board.launch() + "data/plugin/"

    def ask(what, **words):
        return json.load(urllib.request.urlopen(address + what + "?" + urllib.parse.urlencode(words)))

    def each(plugin, what):
        return {tag: ask(f"{plugin}/{what}", run=run, tag=tag)
                for run, tags in ask(plugin + "/tags").items() for tag in tags}

    # it reads files in a thread of its own
    found, before = each("scalars", "scalars"), None
    for _ in range(600):
        if found and found == before:
            break
        time.sleep(0.5)
        before, found = found, each("scalars", "scalars")
    return {"scalars": {tag: [[step, plain(float(x))] for _, step, x in points] for tag, points in found.items()},
            "texts": {tag: [[p["step"], p["text"]] for p in points] for tag, points in each("text", "text").items()},
            "images": {tag: [p["step"] for p in points] for tag, points in each("images", "images").items()}}


def blocks(path):
    """Records by the rules of the format, where the SDK has no reader in Python."""
    data, at, part = open(path, "rb").read(), 7, b""
    assert struct.unpack("<4sHB", data[:7]) == (b":W&B", 0xBEE1, 0)
    while at < len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        crc, n, kind = struct.unpack("<IHB", data[at:at + 7])
        assert zlib.crc32(data[at + 6:at + 7 + n]) == crc and n + 7 <= left
        part, at = part + data[at + 7:at + 7 + n], at + 7 + n
        if kind in (1, 4):
            yield part
            part = b""


def records(path):
    try:
        from wandb.sdk.internal.datastore import DataStore
    except ImportError:
        yield from blocks(path)
        return
    store = DataStore()
    store.open_for_scan(path)
    while (data := store.scan_data()) is not None:
        yield data


def wandb(folder):
    from wandb.proto import wandb_internal_pb2 as pb
    rows, exits, missing = {}, [], []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*", "*.wandb"))):
        last = 0
        for data in records(path):
            r = pb.Record()
            r.ParseFromString(data)
            kind = r.WhichOneof("record_type")
            if kind == "run" and r.run.HasField("branch_point"):
                rows = {k: v for k, v in rows.items() if k <= r.run.branch_point.value}
            elif kind == "history":
                row = {i.key: plain(json.loads(i.value_json)) for i in r.history.item}
                assert row["_step"] == r.history.step.num > last
                last = row["_step"]
                rows[last] = row
            elif kind == "files":
                missing += [i.path for i in r.files.files
                            if not os.path.exists(os.path.join(os.path.dirname(path), "files", i.path))]
            elif kind == "exit":
                exits.append(r.exit.exit_code)
    return {"rows": [rows[k] for k in sorted(rows)], "exits": exits, "missing": missing}


try:
    readers = {"tensorboard": tensorboard, "server": server, "wandb": wandb}
    print(json.dumps(readers[sys.argv[1]](sys.argv[2])))
    sys.stdout.flush()
    os._exit(0)  # the server's threads go on
except ImportError:
    sys.exit(77)
