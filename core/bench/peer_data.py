"""What others do with the same clips and the same table; run by lua/moonreel/bench/readers.lua as
`python3 - WHAT REQUEST`. The last line is JSON.

pyav       a careful reader: seek to the key frame, decode what is needed, scale the wanted frames
open-sora  the way of Open-Sora 1.2: decode the whole clip, then pick frames, then resize
pandas     read a table whole, then look at single rows
"""
import json
import resource
import sys
import time

WHAT, ASK = sys.argv[1], json.loads(sys.argv[2])


def say(**result):
    result["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result))


def clips(read, name, version, **more):
    """Clips per second of processor time, of rounds over the same files."""
    read(ASK["files"][0])
    began, done = time.process_time(), 0
    while time.process_time() - began < ASK["seconds"] or done == 0:
        read(ASK["files"][done % len(ASK["files"])])
        done += 1
    say(name=name, version=version, clips_per_s=done / (time.process_time() - began), **more)


def pyav():
    import av
    import numpy as np

    def read(path):
        with av.open(path) as container:
            stream = container.streams.video[0]
            stream.thread_type, stream.codec_context.thread_count = "NONE", 1
            wanted = {ASK["start"] + i * ASK["interval"] for i in range(ASK["frames"])}
            last, out = max(wanted), []
            rate, base = stream.average_rate, stream.time_base
            container.seek(int(ASK["start"] / rate / base), stream=stream, backward=True)
            for frame in container.decode(stream):
                at = round(float(frame.pts * base * rate))
                if at in wanted:
                    small = frame.reformat(ASK["width"], ASK["height"], "rgb24", interpolation="BILINEAR")
                    out.append(small.to_ndarray())
                if at >= last:
                    break
            return np.stack(out)

    began = time.process_time()
    for path in ASK["files"]:
        with av.open(path) as container:
            for packet in container.demux(container.streams.video[0]):
                packet.pts
    packets_s = (time.process_time() - began) / len(ASK["files"])
    clips(read, "PyAV", av.__version__, packets_s=packets_s)


def open_sora():
    import av
    import numpy as np
    import torch

    def read(path):
        with av.open(path) as container:
            stream = container.streams.video[0]
            stream.thread_type, stream.codec_context.thread_count = "NONE", 1
            frames = [f.to_rgb().to_ndarray() for f in container.decode(stream)]
        video = torch.as_tensor(np.stack(frames)).permute(0, 3, 1, 2)
        index = [ASK["start"] + i * ASK["interval"] for i in range(ASK["frames"])]
        picked = video[index].float() / 255
        small = torch.nn.functional.interpolate(picked, (ASK["height"], ASK["width"]), mode="bilinear")
        return (small - 0.5) / 0.5

    torch.set_num_threads(1)
    clips(read, "Open-Sora's way (PyAV, torch)", f"{av.__version__}, {torch.__version__}")


def pandas():
    import pandas as pd

    began = time.perf_counter()
    table = pd.read_csv(ASK["file"])
    read_s = time.perf_counter() - began
    began = time.perf_counter()
    for i in range(2000):
        row = table.iloc[i * 7919 % len(table)]
        row["path"], row["text"]
    say(name="pandas", version=pd.__version__, rows=len(table), seconds=read_s,
        row_s=(time.perf_counter() - began) / 2000)


{"pyav": pyav, "open-sora": open_sora, "pandas": pandas}[WHAT]()
