--- Runs and prints the measurements of `moonreel bench`: runs.NAME(options) measures and returns
-- the result, a plain table, and a function that prints it.
-- @module moonreel.bench.show
local printer = require "moonreel.text.table"

local runs = {}

-- prints a line at once, before what comes next is measured; JSON is one object, at the end
local function say(o, text)
  if not o.json then
    print(text)
    io.stdout:flush()
  end
end

-- what is asked of PyTorch turn by turn, where it is; `request` makes it of a measurement
local function asker(o, what, request)
  local peer = require "moonreel.bench.peer"
  return o.peer and function(r)
    if o.python then
      say(o, ("  now alternating with PyTorch: at most %g s to choose between eager mode and "
        .. "torch.compile, %g s a run in eager mode"):format(peer.compile_s, peer.deadline_s))
    end
    return peer.by_turns(o.python, what, request(r))
  end
end

local function print_ops(result, show)
  if not show then
    return
  end
  local total = 0
  for _, e in ipairs(result.ops) do
    total = total + e.seconds
  end
  for _, e in ipairs(result.ops) do
    e.share, e.tflops, e.gb_per_s = e.seconds / total, e.flop / e.seconds * 1e-12,
      e.bytes / e.seconds * 1e-9
  end
  local function digits(f) return function(v) return (f):format(v) end end
  printer.print({{key = "op"}, {key = "calls", right = true},
    {key = "seconds", right = true, format = digits("%.5f")},
    {key = "share", right = true, format = function(v) return ("%.1f %%"):format(100 * v) end},
    {key = "tflops", title = "TFLOP/s", right = true, format = digits("%.3f")},
    {key = "gb_per_s", title = "GB/s", right = true, format = digits("%.1f")}}, result.ops)
end

local function say_peer(result, text)
  local p = result.peer
  if result.peer_missing then
    print("  peer: " .. result.peer_missing)
  elseif p then
    print(("  %s %s, %s (its products: %.3f TFLOP/s)%s%s: %s"):format(p.name, p.version, p.dtype,
      p.product_tflops, p.compiled and ", by torch.compile" or "",
      p.runs == 1 and ", one run" or "", text(p)))
  end
end

function runs.step(o)
  local cut = require("moonreel.bench.cuts").all[o.model or "stdit3"]
  local function request(r)
    return {threads = r.threads, flop = r.flop, isa = r.isa, dtype = r.dtype, family = cut.family,
      latent = cut.latent, model = cut.model, text = cut.text, grad_checkpoint = o.grad_checkpoint}
  end
  local r = require("moonreel.bench.step").measure(o, asker(o, "step", request), function(r)
    say(o, ("step of %s: %s, %s, %d threads: %.3f s, %.3f TFLOP/s of %.3f (%s)"):format(
      cut.family, r.isa, r.dtype, r.threads, r.seconds, r.tflops, r.peak_tflops, r.peak_shape))
    say(o, ("  resident %.0f MB at most, %.0f planned (%+.1f %%); medians of %d rounds, peak and "
      .. "steps alternating"):format(r.peak_bytes * 1e-6, r.planned_bytes * 1e-6,
      100 * (r.planned_bytes / r.peak_bytes - 1), r.rounds))
    for _, one in ipairs(r.by_settings) do
      say(o, ("  grad_checkpoint = %-5s  %.3f s, ratio %.2f, arena %.0f MB"):format(
        one.settings.grad_checkpoint, one.seconds, one.ratio, one.arena_bytes * 1e-6))
    end
  end)
  return r, function()
    say_peer(r, function(p)
      return ("%.3f s, %.3f TFLOP/s, %.0f MB, of which `import torch` %.0f MB; moonreel: %.2f x "
        .. "the speed, %.2f x the memory (%.2f x without the import)"):format(p.seconds, p.tflops,
        p.peak_bytes * 1e-6, p.import_bytes * 1e-6, r.speedup, r.memory_share, r.memory_share_net)
    end)
    print_ops(r, o.ops)
  end
end

runs["demo-step"] = function(o)
  local function request(r)
    return {threads = r.threads, isa = r.isa, dtype = r.dtype, shape = r.shape}
  end
  local r = require("moonreel.bench.demo").measure(setmetatable({recipe = "recipes/tiny/demo.lua"},
    {__index = o}), asker(o, "demo-step", request), function(r)
    say(o, ("demo-step: %s, %s, %d threads: %.4f s, %.0f tokens/s, %.3f TFLOP/s"):format(r.isa,
      r.dtype, r.threads, r.seconds, r.tokens_per_s, r.tflops))
  end)
  return r, function()
    say_peer(r, function(p)
      return ("%.4f s, %.0f tokens/s; moonreel: %.2f x the speed"):format(p.seconds,
        r.tokens / p.seconds, r.speedup)
    end)
    print_ops(r, o.ops)
  end
end

function runs.weights(o)
  local r = require("moonreel.bench.weights").measure(o)
  return r, function()
    print(("weights: measured in %.2f ms, %.1f GB/s; a step of the demo takes %.1f ms: %.3f %% of "
      .. "the time at weights.every = %d, %.1f %% is allowed: %s"):format(r.seconds * 1e3,
      r.rate * 1e-9, r.step_s * 1e3, r.share * 100, r.every, r.aim * 100,
      r.share < r.aim and "met" or "MISSED"))
  end
end

function runs.follow(o)
  local r = require("moonreel.bench.follow").measure(o)
  return r, function()
    print(("follow: a step of the demo takes %.2f ms %s, %.2f ms %s: %.4f times as long over %d "
      .. "steps of each, %.4f times the processor time, of which %.2f is allowed: %s"):format(
      r.first_s * 1e3, r.journal and ("behind a journal of %d steps"):format(r.journal)
      or "with trackers and monitoring of weights and hosts", r.second_s * 1e3,
      r.journal and "in a new run" or "without", r.ratio, r.rounds, r.cpu_ratio, r.aim,
      r.cpu_ratio <= r.aim and "met" or "MISSED"))
  end
end

function runs.muon(o)
  local r = require("moonreel.bench.muon").measure(o)
  return r, function()
    print(("muon: %s, %d threads: a step of the demo takes %.1f ms with AdamW, %.1f ms with Muon: "
      .. "%.2f times as long, %.2f is allowed: %s; medians of %d in turn"):format(r.dtype,
      r.threads, r.adamw_s * 1e3, r.muon_s * 1e3, r.ratio, r.aim, r.ratio <= r.aim and "met"
      or "MISSED", r.rounds))
  end
end

function runs.kernels(o)
  local rows, machine = require("moonreel.bench.kernels").measure(o)
  return {kernels = rows, machine = machine}, function()
    print(("kernels: %s, %s, %d threads"):format(machine.isa, machine.dtype, machine.threads))
    printer.print({{key = "op"}, {key = "shape"},
      {key = "seconds", right = true, format = function(v) return ("%.5f"):format(v) end},
      {key = "tflops", title = "TFLOP/s", right = true, format = function(v)
        return ("%.3f"):format(v)
      end},
      {key = "gb_per_s", title = "GB/s", right = true, format = function(v)
        return ("%.1f"):format(v)
      end},
      {key = "of_limit", title = "share of limit", right = true,
        format = function(v, row)
          local of = row.limit == "flop" and ("%.3f TFLOP/s"):format(row.limit_rate * 1e-12)
            or ("%.1f GB/s"):format(row.limit_rate * 1e-9)
          return ("%.2f of %s"):format(v, of)
        end}}, rows)
  end
end

function runs.conv(o)
  local missing
  local function ask(row, machine)
    local answer, reason = require("moonreel.bench.peer").run(o.python, "conv", {x = row.x,
      filters = row.filters, kernel = row.kernel, pad = row.pad, stride = row.stride,
      groups = row.groups, dtype = row.dtype, threads = machine.threads,
      isa = machine.isa, seconds = o.seconds / 10})
    missing = reason
    return answer and answer.seconds
  end
  local rows, machine, verdicts = require("moonreel.bench.conv").measure(o, o.peer and ask or nil)
  return {conv = rows, machine = machine, verdicts = verdicts, peer_missing = missing}, function()
    print(("conv: %s, %d threads; ratio: PyTorch's seconds / moonreel's, channels last in both; "
      .. "to f32: PyTorch's in f32 / moonreel's in bf16"):format(machine.isa, machine.threads))
    local function digits(f) return function(v) return v and (f):format(v) or "-" end end
    printer.print({{key = "name"}, {key = "dtype"}, {key = "x", format = function(v)
      return "[" .. table.concat(v, ",") .. "]" end},
      {key = "flop", title = "FLOP", right = true, format = digits("%.2g")},
      {key = "bytes", right = true, format = digits("%.2g")},
      {key = "seconds", right = true, format = digits("%.5f")},
      {key = "tflops", title = "TFLOP/s", right = true, format = digits("%.3f")},
      {key = "of_peak", title = "share of peak", right = true, format = digits("%.2f")},
      {key = "peer_seconds", title = "PyTorch", right = true, format = digits("%.5f")},
      {key = "ratio", right = true, format = digits("%.2f")},
      {key = "f32_ratio", title = "to f32", right = true, format = digits("%.2f")}}, rows)
    for _, v in ipairs(verdicts) do
      print(("  %s: %d of %d layers at least %.1f times as fast as PyTorch in f32, the target: %s")
        :format(v.dtype, v.met, v.layers, v.aim, v.met == v.layers and "met" or "MISSED"))
      for _, miss in ipairs(v.missed) do
        print(("    %s: %.2f, PyTorch at %.2f of the product peak"):format(miss.name, miss.ratio,
          miss.peer_of_peak))
      end
      if v.own_met then
        print(("    %d layers reach this factor against PyTorch in %s"):format(v.own_met, v.dtype))
      end
    end
    say_peer({peer_missing = missing})
  end
end

function runs.shapes(o)
  local shapes = require "moonreel.bench.shapes"
  local settings = require("moonreel.settings").bake(shapes.recipe)
  local r = shapes.measure(settings, o.shapes)
  return r, function()
    print(("shapes: %s, %d parameters: %d shapes planned in %.1f s, %.0f ms each (at most %.0f)")
      :format(shapes.recipe, r.parameters, r.shapes, r.seconds, r.median_s * 1e3, r.most_s * 1e3))
    print(("  %d are kept, %.0f MB of %.0f MB (%.1f MB each); resident %.0f MB at most"):format(
      r.kept, r.bytes * 1e-6, r.bound * 1e-6, r.each_bytes * 1e-6,
      require("moonreel.core.bench").max_resident() * 1e-6))
  end
end

function runs.each(o)
  local each = require "moonreel.bench.each"
  local rows = each.measure(o)
  return {each = rows}, function()
    local function with(f, aim)
      return function(v, row)
        local text = v and f:format(v) or "-"
        return v and row[aim] and ("%s of %.2f"):format(text, row[aim]) or text
      end
    end
    local function column(key, title, f, aim)
      return {key = key, title = title, right = true, format = with(f, aim)}
    end
    printer.print({{key = "what", title = "each"}, {key = "isa"}, {key = "dtype"},
      {key = "threads", right = true}, column("seconds", "seconds", "%.3f"),
      column("ratio", "share of peak", "%.2f", "ratio_aim"),
      column("peer_seconds", "PyTorch", "%.3f"), {key = "peer_isa", title = "PyTorch ISA"},
      column("speedup", "speedup", "%.2f", "speedup_aim"),
      column("mb", "MB", "%.0f"), column("peer_mb", "PyTorch MB", "%.0f"),
      column("memory_share", "memory ratio", "%.2f", "memory_aim")}, rows)
    for _, row in ipairs(rows) do
      if row.missing then
        print(("  %s, %s, %s: %s"):format(row.what, row.isa, row.dtype, row.missing))
      end
    end
  end
end

function runs.packing(o)
  local rows, machine = require("moonreel.bench.packing").measure(o)
  return {packing = rows, machine = machine}, function()
    print(("packing: %s, %s, %d threads; shares of the time of products"):format(machine.isa,
      machine.dtype, machine.threads))
    local function share(key, title)
      return {key = key, title = title, right = true, format = function(v)
        return v and ("%.1f %%"):format(100 * v) or "-"
      end}
    end
    printer.print({{key = "model"}, {key = "rows", right = true}, {key = "how"},
      share("largest", "at most, of one product"), share("forward", "of a forward pass"),
      share("step", "of a training step"), share("saved", "saved by a cache"),
      {key = "bytes", title = "memory of the cache", right = true, format = function(v)
        return ("%.0f %% of the weights"):format(100 * v)
      end}}, rows)
  end
end

function runs.graph(o)
  local graph = require "moonreel.bench.graph"
  local rows = graph.measure(o)
  local wide = require("moonreel.bench.mmdit").plan(1, graph.mmdit_tokens, true)
  return {graph = rows, mmdit = wide}, function()
    local columns = {{key = "depth", title = "graph: depth", right = true},
      {key = "nodes", right = true}}
    for _, phase in ipairs(graph.phases) do
      columns[#columns + 1] = {key = phase, right = true, format = function(v, row)
        return ("%.1f ms, %.1f us"):format(v * 1e3, v / row.nodes * 1e6)
      end}
    end
    printer.print(columns, rows)
    local deep = rows[#rows]
    print(("  finish of %d nodes: %.1f of %.0f ms: %s"):format(deep.nodes, deep.finish * 1e3,
      graph.finish_s * 1e3, deep.finish <= graph.finish_s and "met" or "MISSED"))
    print(("  57 blocks of width 3072, %d tokens, %d parameters: %d steps planned in %.2f s")
      :format(graph.mmdit_tokens, wide.parameters, wide.nodes, wide.seconds))
  end
end

function runs.save(o)
  local r = require("moonreel.bench.save").measure(o)
  return r, function()
    print(("save: %d MiB: the step waits %.1f ms; a copy takes %.1f ms, the limit is 1.3 copies + "
      .. "5 ms = %.1f ms: %s"):format(
      r.bytes >> 20, r.stall_s * 1e3, r.copy_s * 1e3, r.limit_s * 1e3,
        r.stall_s <= r.limit_s and "met" or "MISSED"))
    for _, one in ipairs(r.readings) do
      print(("  from the %s: verified at %.2f GB/s, read at %.2f: %.2f of its time; %.2f GB per "
        .. "processor second"):format(one.from, one.verify_rate * 1e-9, one.read_rate * 1e-9,
        one.share, one.cpu_rate * 1e-9))
    end
  end
end

function runs.cli(o)
  local rows = require("moonreel.bench.cli").measure(o)
  return {cli = rows}, function()
    for _, row in ipairs(rows) do
      row.met = row.seconds < row.aim_s
        and (not row.private_bytes or row.private_bytes < row.aim_bytes)
    end
    local function of(key, aim, title, unit, scale)
      return {title = title, key = key, right = true,
        format = function(v, row)
          return ("%.1f of %.0f %s"):format(v * scale, row[aim] * scale, unit)
        end}
    end
    printer.print({{key = "what", title = "cli"}, of("seconds", "aim_s", "takes", "ms", 1e3),
      {key = "cpu_s", title = "processor", right = true, format = function(v)
        return ("%.1f ms"):format(v * 1e3)
      end},
      of("private_bytes", "aim_bytes", "private memory", "MB", 1e-6),
      {key = "met", title = "", format = function(v) return v and "met" or "MISSED" end}}, rows)
  end
end

local function verdict(met) return met and "met" or "MISSED" end

-- lines about encoders, each as soon as it is measured
local encoder_lines = {}

function encoder_lines.machine(r)
  return ("encoders: %s, %d threads"):format(r.isa, r.threads)
end

function encoder_lines.clip(one)
  local lines = {}
  for i, name in ipairs {"encode", "decode"} do
    local row = one[name]
    lines[i] = ("  %s a clip, %s: %.2f s, peak %.0f MB; weights %.0f MB + 1.1 x the largest layer "
      .. "of %.0f MB: %s"):format(name, one.dtype, row.seconds, row.peak_bytes * 1e-6,
      one.weight_bytes * 1e-6, row.layer_bytes * 1e-6, verdict(row.peak_bytes <= row.limit_bytes))
  end
  return table.concat(lines, "\n")
end

function encoder_lines.part(row)
  local line = ("  %s, %s: %.3f s, %.3f TFLOP/s"):format(row.part, row.dtype, row.seconds,
    row.tflops)
  if row.peer then
    line = line .. ("; PyTorch %.3f s, %.0f MB: %.2f x"):format(row.peer.seconds,
      row.peer.peak_bytes * 1e-6, row.speedup)
  elseif row.peer_missing then
    line = line .. "; PyTorch: " .. row.peer_missing
  end
  return row.peer and row.aim and ("%s, target %.1f x: %s"):format(line, row.aim,
    verdict(row.speedup >= row.aim)) or line
end

function encoder_lines.caption(c)
  return ("  a caption through XXL from its file, %s: %.2f s, peak %.0f of %.0f MB: %s; read %.3f "
    .. "of the blocks' bytes"):format(c.dtype, c.seconds, c.peak_bytes * 1e-6,
    c.limit_bytes * 1e-6, verdict(c.peak_bytes <= c.limit_bytes), c.read_bytes / c.weight_bytes)
end

function encoder_lines.block(row)
  return ("  %s, %s: %.2f of the product peak, %.2f of the share of the step (%.2f): %s"):format(
    row.part, row.dtype, row.share, row.share / row.step_share, row.step_share,
    verdict(row.share >= row.share_aim * row.step_share))
end

function runs.encoders(o)
  local r = require("moonreel.bench.encoders").measure(o, function(what, row)
    say(o, encoder_lines[what](row))
  end)
  return r, function() end
end

-- lines about a clip through an autoencoder, each as soon as it is measured
local vae_lines = {}

function vae_lines.machine(r)
  return ("vae: %s of random weights, widths %s, clips of %d frames of %d x %d: %s, %d threads"
    ):format(r.type, table.concat(r.widths, " "), r.clip.frames, r.clip.width, r.clip.height,
    r.isa, r.threads)
end

function vae_lines.job(row)
  local p = row.peer
  local line = ("  %s, %s: %.2f s, peak %.0f MB, planned %.0f MB"):format(row.job, row.dtype,
    row.seconds, row.peak_bytes * 1e-6, row.planned_bytes * 1e-6)
  if p then
    line = line .. ("; %s %s: %.2f s, peak %.0f MB, of which imports %.0f MB; moonreel: %.2f x the "
      .. "speed, %.2f x the memory (%.2f x without the imports)"):format(p.name, p.version,
      p.seconds, p.peak_bytes * 1e-6, p.import_bytes * 1e-6, row.speedup, row.memory_share,
      row.memory_share_net)
  elseif row.peer_missing then
    line = line .. "; the peer: " .. row.peer_missing
  end
  return line .. ("; medians of %d turns"):format(row.rounds)
end

function runs.vae(o)
  local peer = require "moonreel.bench.peer"
  local python = o.peer and peer.python(o.python, "diffusers, torch")
  if o.peer and not python then
    say(o, ("vae: %s cannot import diffusers and torch: moonreel alone; try: --python FILE"):format(
      o.python or "python3"))
  end
  local r = require("moonreel.bench.vae").measure(o, python and function(request)
    return peer.run(python, "clip", request)
  end, function(what, row) say(o, vae_lines[what](row)) end)
  r.peer_missing = o.peer and not python and "no diffusers" or nil
  return r, function() end
end

function runs.comm(o)
  local r = require("moonreel.bench.comm").measure(o)
  return r, function()
    print(("comm: %d ranks of this host"):format(r.ranks))
    local function timed(key, title)
      return {key = key, title = title, right = true, format = function(v, row)
        local rate = row.bytes > 0 and (", %.2f GB/s"):format(row.bytes / v * 1e-9) or ""
        return ("%.1f us%s"):format(v * 1e6, rate)
      end}
    end
    local function ratio(key, title)
      return {key = key, title = title, right = true,
        format = function(v) return ("%.2f"):format(v) end}
    end
    printer.print({{key = "op"}, {key = "bytes", right = true}, timed("shared", "shared memory"),
      timed("plain", "TCP"), timed("sealed", "TCP, sealed"),
      ratio("sealed_ratio", "rate / TCP's"), timed("hidden", "encrypted"),
      ratio("hidden_ratio", "rate / TCP's"), timed("mpi", "over MPI"),
      timed("raw", "MPI's own"), ratio("ratio", "time over MPI / MPI's own")}, r.rows)
    if r.mpi_missing then
      print("  MPI: " .. r.mpi_missing)
    end
  end
end

function runs.ranks(o)
  local ranks = require "moonreel.bench.ranks"
  local r = ranks.measure(o)
  return r, function()
    local s, rows = r.seconds, {}
    local says = {one = "one rank, one thread: the whole step",
      threads = ("one rank, %d threads: the whole step"):format(r.ranks),
      apart = ("%d ranks at once, each its part, without messages"):format(r.ranks),
      reported = ("only their messages: %.1f MB each"):format(r.sent * 1e-6),
      together = ("%d ranks, one thread each: the step"):format(r.ranks)}
    for i, name in ipairs(ranks.parts) do
      rows[i] = {what = says[name], seconds = s[name], cpu = s[name .. "_cpu"]}
    end
    print(("ranks: a step of %s, %s; medians of %d rounds"):format(ranks.recipe, r.dtype,
      r.rounds))
    local function ms(v) return ("%.1f ms"):format(v * 1e3) end
    printer.print({{key = "what", title = "part"},
      {key = "seconds", title = "takes", right = true, format = ms},
      {key = "cpu", title = "processor", right = true, format = ms}}, rows)
    print(("  the step without messages / (1/%d of one rank's): %.2f, at most %.2f: %s "
      .. "(processor time %.2f)"):format(r.ranks, s.ratio, ranks.most, verdict(r.met), s.ratio_cpu))
    print(("  of that, the ranks without messages: %.2f (processor time %.2f); all / %d threads: "
      .. "%.2f"):format(s.alone, s.alone_cpu, r.ranks, s.of_threads))
    local function mb(v) return ("%.2f MB"):format(v * 1e-6) end
    local function share(v, row)
      return ("%s, %.2f P(W-1)/W"):format(mb(v), v / row.parameters / (r.ranks - 1) * r.ranks)
    end
    print(("  memory and messages of a rank in a step: P = %d padded parameters, W = %d ranks")
      :format(r.stages[1].parameters, r.ranks))
    printer.print({{key = "stage", title = "ZeRO"}, {key = "state", right = true,
      format = function(v, row) return ("%s, %.1f P"):format(mb(v), v / row.parameters) end},
      {key = "a_while", title = "temporary", right = true, format = mb},
      {key = "reported", title = "sent, reported", right = true, format = share},
      {key = "sent", title = "sent, counted", right = true, format = share},
      {key = "norm", title = "also for the norm", right = true, format = function(v)
        return ("%d bytes"):format(v)
      end}}, r.stages)
  end
end

function runs.plan(o)
  local plan = require "moonreel.bench.plan"
  local rows, machine = plan.measure(o)
  local good = true
  for _, row in ipairs(rows) do
    good = good and row.within
  end
  return {plan = rows, machine = machine, within = good}, function()
    print(("plan: %s, %s, %d threads; rates of other shapes, medians of %d rounds, the "
      .. "fastest of %d runs each"):format(machine.isa, machine.dtype, machine.threads,
      plan.rounds, plan.turns))
    local function ms(v) return ("%.1f ms"):format(v * 1e3) end
    printer.print({{key = "name", title = "step"},
      {key = "predicted_s", title = "predicted", right = true, format = ms},
      {key = "measured_s", title = "measured", right = true, format = ms},
      {key = "off", title = "", right = true, format = function(v)
        return ("%+.1f %%"):format(100 * v)
      end},
      {key = "within", title = "", format = function(v) return v and "met" or "MISSED" end}}, rows)
    print(("  all within %.0f %%: %s"):format(100 * plan.within, good and "met" or "MISSED"))
  end
end

-- lines {what, value, unit, aim, most, note}, each with its target
local function print_aims(lines)
  local function number(v) return v and (v >= 100 and "%.0f" or "%.3g"):format(v) or "-" end
  for _, line in ipairs(lines) do
    line.says = line.value and (line.most and line.value <= line.aim
      or not line.most and line.value >= line.aim) and "met" or line.value and "MISSED" or ""
  end
  printer.print({{key = "what", title = "data"},
    {key = "value", title = "", right = true, format = number}, {key = "unit", title = ""},
    {key = "aim", right = true, format = function(v, row)
      return (row.most and "<= " or ">= ") .. number(v)
    end}, {key = "says", title = ""}, {key = "note", title = ""}}, lines)
end

function runs.order(o)
  local lines = require("moonreel.bench.order").measure(o)
  return {lines = lines}, function() print_aims(lines) end
end

function runs.data(o)
  local lines = require("moonreel.bench.clips").measure(o)
  local more = require("moonreel.bench.order").measure(o)
  table.move(more, 1, #more, #lines + 1, lines)
  local peers = o.peer and require("moonreel.bench.readers").measure(o) or {}
  return {lines = lines, peers = peers}, function()
    print_aims(lines)
    for _, p in ipairs(peers) do
      print(("  %s: %s"):format(p.name, p.note))
    end
  end
end

return runs
