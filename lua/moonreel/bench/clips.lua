--- Cost of data before training: building an index, decoding and scanning clips, the memory of a
-- decoder after many clips, and batches that several threads fill. Each line has its target. Ref:
-- dataplane.md, sections 1, 2 and 8.
-- @module moonreel.bench.clips
local base = require "moonreel.core.base"
local core = require "moonreel.core.bench"
local data = require "moonreel.data"
local index_core = require "moonreel.core.index"
local media = require "moonreel.core.media"
local paired = require "moonreel.bench.paired"
local process = require "moonreel.core.process"
local temporary = require "moonreel.data.temporary"

local clips = {}

local FPS, GOP, SECONDS = 24, 48, 10
local WANTED = { frames = 51, interval = 2, height = 240, width = 426 }
local THREADS, SMALL = 16, 24
local POOL_BYTES <const> = 512 << 20

-- the processor seconds of f()
local function cpu_of(f)
  local before = core.cpu_s()
  f()
  return core.cpu_s() - before
end

local function file_bytes(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:seek("end")
end

local function resident_bytes()
  local pages = base.read_file("/proc/self/statm"):match("%d+ (%d+)")
  return tonumber(pages) * 4096
end

-- several versions of one line of a picture: the moving part is the same in all, the grain differs
local function lines_with_grain(width)
  local state, lines = 1, {}
  for v = 1, 32 do
    local line = {}
    for i = 1, 3 * width do
      state = (state * 1103515245 + 12345) & 0x7fffffff
      local wave = 40 * math.sin(i / 37) + 30 * math.sin(i / 11) + (i // 160) % 2 * 50
      line[i] = string.char(math.floor(90 + wave) + (state >> 16) % 9)
    end
    lines[v] = table.concat(line)
  end
  return lines
end

--- Writes a clip with motion and grain, of about 4 Mbit/s.
---@param path string
---@param seconds? number
---@param height? integer  default 720; the aspect is 16:9
function clips.write(path, seconds, height)
  height = height or 720
  local width = height * 16 // 9
  local lines = lines_with_grain(width)
  local encoder <close> = data.encoder(path, { height = height, width = width, fps = FPS, gop = GOP,
    options = "preset=veryfast:b=4000000:maxrate=4000000:bufsize=8000000:sc_threshold=0" })
  for t = 0, (seconds or SECONDS) * FPS - 1 do
    local rows = {}
    for y = 1, 3 * height do
      local from = (t * 3 + y * 5) % (2 * width)
      rows[y] = lines[(t * 31 + y * 17 + t * y % 7) % 32 + 1]:sub(from + 1, from + width)
    end
    encoder:frame(table.concat(rows))
  end
  encoder:finish()
end

-- ---- measurements: each returns lines {what, value, unit, aim, most (aim is an upper bound),
-- note} ----

local function build(o, dir)
  local path = dir .. "/synthetic.mrx"
  local made = cpu_of(function() index_core.synthetic(nil, o.rows, 1) end)
  local began = base.now_s()
  local cpu = cpu_of(function() index_core.synthetic(path, o.rows, 1) end) - made
  local wall = math.max(base.now_s() - began - made, 1e-6)
  return { { what = "build", value = o.rows / cpu, unit = "rows/s", aim = 200e3,
    note = ("%d rows, of one processor; %.0f by the clock"):format(o.rows, o.rows / wall) },
    { what = "index", value = file_bytes(path .. "/data.mdb") / o.rows, unit = "bytes/row",
      aim = 260, most = true, note = "captions of 300 bytes" } }
end

-- decoding the clip, compared with decoding all frames of the same file without scaling
local function decode(o, file)
  local last = (WANTED.frames - 1) * WANTED.interval + 1
  local frames = data.scan(file).frames
  local scan = function() return cpu_of(function() media.scan(file) end) end
  local clip = function() return cpu_of(function() data.decode(file, WANTED) end) end
  local all = function() return cpu_of(function() media.watch(file) end) end
  local got = paired.rounds({ scan, clip, all }, o.seconds)
  local ratios, floors = {}, {}
  for i = 1, #got[1] do
    floors[i] = (got[3][i] - got[1][i]) / frames
    ratios[i] = (got[2][i] - got[1][i]) / last / floors[i]
  end
  return { { what = "decode + scale", value = paired.median(ratios), unit = "of the floor",
    aim = 1.10, most = true, note = ("51 frames of 720p to 240 x 426; all frames decoded and "
      .. "thrown away take %.2f ms each"):format(paired.median(floors) * 1e3) } }
end

-- decoding with the ffmpeg tool, alternating with moonreel's
local function tool(o, file)
  -- the shell searches PATH for it
  local function ask(words)
    return process.run({ "/bin/sh", "-c", ("'%s' %s 2>&1"):format(o.ffmpeg or "ffmpeg", words) },
      "", {})
  end
  local found = ask "-version"
  if found.exit ~= 0 then
    return { { what = "decode + scale", unit = "of the ffmpeg tool", aim = 1.10, most = true,
      note = "no ffmpeg command here; try: --ffmpeg FILE" } }
  end
  local frames = data.scan(file).frames
  local last = (WANTED.frames - 1) * WANTED.interval + 1
  local function theirs()
    local out = ask(("-nostdin -benchmark -threads 1 -i '%s' -map 0:v -f null -"):format(file))
      .output
    local user, system = out:match("utime=([%d.]+)s stime=([%d.]+)s")
    return (tonumber(user) + tonumber(system)) / frames
  end
  local scan = function() return cpu_of(function() media.scan(file) end) end
  local clip = function() return cpu_of(function() data.decode(file, WANTED) end) end
  local got = paired.rounds({ scan, clip, theirs }, o.seconds)
  local ratios = {}
  for i = 1, #got[1] do
    ratios[i] = (got[2][i] - got[1][i]) / last / got[3][i]
  end
  return { { what = "decode + scale", value = paired.median(ratios), unit = "of the ffmpeg tool",
    aim = 1.10, most = true, note = found.output:match("^[^\n]-version %S+") } }
end

-- A scan reads all packets, and the properties of the first frame without decoding it.
local function scan(o, file, lines, aim)
  local got = paired.rounds({ function() return cpu_of(function() media.scan(file) end) end },
    o.seconds / 4)
  return { what = "scan", value = paired.median(got[1]) * 1e3, unit = "ms", aim = aim, most = true,
    note = ("10 s of %dp, %.1f MB"):format(lines, file_bytes(file) / 1e6) }
end

-- makes small clips, for measurements with many files
local function small_clips(dir)
  base.make_dir(dir .. "/small")
  for i = 1, SMALL do
    local frames = {}
    for t = 1, 32 do
      frames[t] = string.char(i * 9, t * 7, (i * t) % 256, 90):rep(3 * 96 * 96 // 4)
    end
    data.encode(("%s/small/%02d.mp4"):format(dir, i), table.concat(frames), { frames = 32,
      height = 96, width = 96, gop = 8 })
  end
  data.ingest(dir .. "/small", dir .. "/small.mrx")
end

local function memory(o, dir)
  local first
  for i = 1, o.clips do
    data.decode(("%s/small/%02d.mp4"):format(dir, i % SMALL + 1), { frames = 16, height = 48,
      width = 48, start = i % 16 })
    if i == 20 then
      collectgarbage()
      first = resident_bytes()
    end
  end
  collectgarbage()
  return { { what = "memory", value = resident_bytes() / first, unit = "of that after 20 clips",
    aim = 1.10, most = true, note = ("one worker, %d clips"):format(o.clips) } }
end

-- compares every sample of some epochs with the same frames decoded separately
local function torn(_, dir)
  local index <close> = data.open(dir .. "/small.mrx")
  local loader <close> = data.loader { index = index, seed = 3, epochs = 4, threads = THREADS,
    prefetch = 6,
    resolutions = { tiny = { pixels = 48 * 48, aspects = { ["1.00"] = { 48, 48 } } } },
    bucket_config = { tiny = { [16] = { 1.0, 5 } } } }
  local seen, wrong, one = 0, 0, 16 * 3 * 48 * 48
  for batch in function() return loader:next() end do
    local bytes = batch:tensor():bytes()
    for i = 1, batch.n do
      local alone = data.decode(index:row(batch.ids[i] + 1).file, { frames = 16, height = 48,
        width = 48, start = batch.starts[i] })
      seen = seen + 1
      wrong = wrong + (bytes:sub((i - 1) * one + 1, i * one) == alone and 0 or 1)
    end
    loader:release(batch)
  end
  return { { what = "torn samples", value = wrong, unit = ("of %d"):format(seen), aim = 0,
    most = true, note = ("%d workers"):format(THREADS) } }
end

-- Measures the memory of a loader at its start and its share of large pages, alternating with the
-- same number of threads that write the same amount of fresh memory, which is the limit of this
-- machine.
local function slabs(o, dir)
  local index <close> = data.open(dir .. "/small.mrx")
  local batch = o.pool_bytes // 4 // (16 * 3 * 48 * 48)
  local bytes, large = 0, 0
  local got = paired.rounds({ function()
    local loader <close> = data.loader { index = index, threads = 1,
      resolutions = { tiny = { pixels = 48 * 48, aspects = { ["1.00"] = { 48, 48 } } } },
      bucket_config = { tiny = { [16] = { 1.0, batch } } } }
    local plan = loader:plan()
    bytes = plan.slabs * plan.slab_bytes
    large = 1 - plan.small_bytes / bytes
    return plan.pool_s
  end, function() return core.touch(bytes) end }, o.seconds)
  local per_gib = (1 << 30) / bytes
  return { { what = "slabs", value = paired.median(got[1]) * per_gib, unit = "s/GiB", aim = 0.34,
    most = true, note = ("touched at the start, %.0f%% of them asked for in large pages"):format(
      100 * large) },
    { what = "slabs", value = paired.ratio(got[1], got[2]), unit = "of a memset", aim = 1.0,
      most = true, note = ("of as much fresh memory by as many threads: %.3f s/GiB"):format(
        paired.median(got[2]) * per_gib) } }
end

-- the measurements by name, in this order; each receives options and a folder
local measures = {
  { "build", build },
  { "decode", function(o, dir)
    local file, large = dir .. "/720p.mp4", dir .. "/1080p.mp4"
    clips.write(file)
    clips.write(large, SECONDS, 1080)
    local lines = decode(o, file)
    lines[2], lines[3], lines[4] = tool(o, file)[1], scan(o, file, 720, 12),
      scan(o, large, 1080, 35)
    return lines
  end },
  { "many", function(o, dir)
    small_clips(dir)
    return { memory(o, dir)[1], torn(o, dir)[1], table.unpack(slabs(o, dir)) }
  end },
}

--- Measures.
---@param o table  seconds: for each of decode, tool and scan; rows (1000000), clips (1500),
---   pool_bytes (512 MiB), ffmpeg: the command; only: one of build, decode, many
---@return table[] lines  {what, value, unit, aim, most, note}; value nil: it was not measured
function clips.measure(o)
  local given = setmetatable({ rows = o.rows or 1000000, clips = o.clips or 1500,
    pool_bytes = o.pool_bytes or POOL_BYTES }, { __index = o })
  local dir <close>, lines = temporary.folder(), {}
  for _, one in ipairs(measures) do
    if not o.only or o.only[one[1]] then
      local more = one[2](given, dir.path)
      table.move(more, 1, #more, #lines + 1, lines)
    end
  end
  return lines
end

return clips
