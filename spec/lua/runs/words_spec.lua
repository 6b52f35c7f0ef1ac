--- Lines of a journal as text for people.
local made_run = require "spec.support.made_run"
local words = require "moonreel.runs.words"

describe("a line of a journal", function()
  it("is printed as a sentence", function()
    for want, line in pairs {
      ["launch 1 starts at step 3 of 40 of stage a: 1 rank, cuda, from x/ckpt/step-3"] =
        made_run.start(3, { parent = "x/ckpt/step-3",
          machine = { libraries = { device = "cuda" } } }),
      ["step 2/40  loss 1.2500  norm 1  lr 0.5  750.0 ms  data wait 250.0 ms"] =
        made_run.step(2, 1.25),
      ["step 4 skipped: no good sample"] = { kind = "skip", step = 4, reason = "no good sample" },
      ["step 4 is a spike of the loss: 9, limit 3 of small; action skip"] = { kind = "spike",
        step = 4, cause = "loss", value = 9, limit = 3, group = "small", action = "skip" },
      ["step 9: back to step 4, the batches of 5 steps are left out: a spike"] = {
        kind = "rollback", step = 4, from = 9, skipped = 5, why = "a spike" },
      ["step 9: back to step 4: a spike"] = { kind = "rollback", step = 4, from = 9, skipped = 0,
        why = "a spike" },
      ["checkpoint of step 4: 1.5 MB, copied in 2.0 ms, written in 30.0 ms"] = { kind = "save",
        event = "commit", step = 4, bytes = 1500000, copy_s = 0.002, write_s = 0.03 },
      ["save of step 4: failed: no space"] = { kind = "save", event = "failed", step = 4,
        text = "no space" },
      ["stopped on request (signal 2) at step 4"] = { kind = "stop", step = 4, signal = 2 },
      ["done: step 4, loss 0.5000"] = { kind = "end", step = 4, loss = 0.5 },
      ["done: step 4, all steps were done before; to continue: moonreel train RUN "
        .. "stages.a.steps=N, with N above 4, or more epochs"] = { kind = "end", step = 4,
        data = { hits = 0, waits = 0 } },
      ["done: step 5, loss -"] = { kind = "end", step = 5, data = { hits = 1, waits = 0 } },
      ["error at step 4: out of memory"] = { kind = "error", step = 4, text = "out of memory" },
      ["weights of a.pth: 1 missing, 0 unexpected, 0 dropped, 2 resized"] = { kind = "weights",
        path = "a.pth", missing = { "x" }, unexpected = {}, resized = { 1, 2 } },
      ["bucket small is compiled: about 2.0 ms a micro-step"] = { kind = "bucket",
        bucket = "small", seconds = 0.002 },
      ["step 4: replicas differ: rank 1"] = { kind = "replicas", step = 4, text = "rank 1" },
      ["step 4: 2 histograms of weights and gradients"] = { kind = "histograms", step = 4,
        histograms = { a = {}, b = {} } },
      ["host a: 2 GPUs, 350 W; at most 70 C; at least 900 MHz; load 1.50, 2.0 GB of memory free; "
        .. "link eth0: 2 errors"] = { kind = "node", host = "a", faults = { "link eth0: 2 errors" },
        scalars = { ["node/a/gpu0/power_w"] = 150, ["node/a/gpu1/power_w"] = 200,
          ["node/a/gpu0/temperature_c"] = 70, ["node/a/gpu1/clock_mhz"] = 900,
          ["node/a/load"] = 1.5, ["node/a/free_memory_bytes"] = 2e9 } },
      ["host b: load -, - B of memory free"] = { kind = "node", host = "b" },
      ["step 4: alarm: the norm of a is 3, more than 2"] = { kind = "alarm", step = 4,
        text = "the norm of a is 3, more than 2" },
      ["step 4: weights have norm 3.5, an update moves 0.00012 of it, averages are off by 0.25 of "
        .. "it"] = { kind = "weight_norms", step = 4, scalars = {
        ["weights/all/norm"] = 3.5, ["weights/all/update_ratio"] = 1.2e-4,
        ["weights/all/ema_drift"] = 0.25 } },
      ["step 4: 3 values are not finite, in ema.a and others; it is not saved"] = { step = 4,
        kind = "nonfinite", values = 3, tensors = { "ema.a", "b" } },
      ["7 lines of the journal are missing: the disk did not accept them"] = { kind = "gap",
        lines = 7 },
      ["note: lower lr\\x0anext"] = { kind = "note", text = "lower lr\nnext" },
      ["gauge: rank 3, step 4, value 2.5"] = { kind = "gauge", step = 4, value = 2.5, rank = 3,
        list = {}, wall = 3 },
    } do
      assert.equal(want, words.of(line, { total = 40, stage = "a" }))
    end
  end)

  it("is printed in one line, also when its fields are missing or have other kinds",
    function()
      for _, kind in ipairs { "start", "step", "skip", "spike", "rollback", "save", "stop", "end",
        "error", "weights", "bucket", "replicas", "output", "gap", "note",
        "weight_norms", "histograms", "alarm", "node", "new", 7 } do
        local odd = { kind = kind, step = "\27[2J", loss = {}, text = "a\27b" }
        for _, line in ipairs { { kind = kind }, odd } do
          assert.is_nil(words.of(line):find("[%c]"), kind)
        end
      end
      assert.equal("sample a.mp4 could not be read (short): 3 of 9 frames", words.failed {
        key = "k", path = "a.mp4", class = "short", detail = "3 of 9 frames" })
      assert.equal("sample - could not be read (-): no detail", words.failed {})
    end)
end)
