--- The same clips and the same table through other readers, if they are installed: PyAV, the reader
-- of Open-Sora 1.2, pandas (core/bench/peer_data.py).
-- @module moonreel.bench.readers
local base = require "moonreel.core.base"
local clips = require "moonreel.bench.clips"
local core = require "moonreel.core.bench"
local data = require "moonreel.data"
local index_core = require "moonreel.core.index"
local paired = require "moonreel.bench.paired"
local peer = require "moonreel.bench.peer"
local temporary = require "moonreel.data.temporary"

local readers = {}

local FILES, LOOKS = 3, 2000
local WANTED = { start = 30, frames = 51, interval = 2, height = 240, width = 426 }

local function ours(files, seconds)
  local n = 0
  local began = core.cpu_s()
  repeat
    n = n + 1
    data.decode(files[n % #files + 1], WANTED)
  until core.cpu_s() - began >= seconds
  return n / (core.cpu_s() - began)
end

-- what a scan takes compared with a pass over the packets alone
local function scans(files, packets_s)
  local began = core.cpu_s()
  for _, file in ipairs(files) do
    data.scan(file)
  end
  local scan_s = (core.cpu_s() - began) / #files
  return ("; its pass over the packets: %.1f ms, our scan: %.1f ms"):format(
    packets_s * 1e3, scan_s * 1e3)
end

-- clips per second of one processor, before and after each peer
local function decode(python, files, seconds, out)
  for _, what in ipairs { "pyav", "open-sora" } do
    local before = ours(files, seconds / 2)
    local request = { files = files, seconds = seconds }
    for key, value in pairs(WANTED) do
      request[key] = value
    end
    local r, why = peer.data(python, what, request)
    local mine = paired.median { before, ours(files, seconds / 2) }
    out[#out + 1] = r and { name = r.name, version = r.version, clips_per_s = r.clips_per_s,
      moonreel = mine, speedup = mine / r.clips_per_s, peak_bytes = r.peak_bytes,
      note = ("%s: %.2f clips/s, %.0f MB; moonreel: %.2f clips/s, %.2f x the speed, %.0f MB at "
        .. "most in the whole benchmark"):format(r.version, r.clips_per_s, r.peak_bytes * 1e-6,
        mine, mine / r.clips_per_s, core.max_resident() * 1e-6)
        .. (r.packets_s and scans(files, r.packets_s) or "") }
      or { name = what, note = why }
  end
end

-- a table of the rows of an index, and both of them asked for single rows
local function tables(python, rows, dir, out)
  local path, csv = dir .. "/t.mrx", dir .. "/t.csv"
  index_core.synthetic(path, rows, 2)
  do
    local index <close> = data.open(path)
    local file <close> = assert(io.open(csv, "wb"))
    file:write("path,text,num_frames,height,width,fps\n")
    for i = 1, #index do
      local r = index:row(i)
      file:write(('%s,"%s",%d,%d,%d,%.6g\n'):format(r.path, r.text, r.frames, r.height, r.width,
        r.fps))
    end
  end
  local r, why = peer.data(python, "pandas", { file = csv })
  local began = base.now_s()
  local index <close> = data.open(path)
  local open_s = base.now_s() - began
  began = base.now_s()
  for i = 1, LOOKS do
    local _ = index:row(i * 7919 % #index + 1).text
  end
  local row_s = (base.now_s() - began) / LOOKS
  out[#out + 1] = r and { name = r.name, version = r.version, rows = r.rows, seconds = r.seconds,
    row_s = r.row_s, open_s = open_s, moonreel_row_s = row_s, peak_bytes = r.peak_bytes,
    note = ("%s: reads %d rows of CSV in %.2f s, %.0f MB, a row in %.1f us; moonreel opens their "
      .. "index in %.2f ms, a row in %.1f us"):format(r.version, r.rows, r.seconds,
      r.peak_bytes * 1e-6, r.row_s * 1e6, open_s * 1e3, row_s * 1e6) }
    or { name = "pandas", note = why }
end

--- Measure what is there.
---@param o table  seconds, python (default python3), rows
---@return table[] peers  {name, note, ...}
function readers.measure(o)
  local dir <close>, files, out = temporary.folder(), {}, {}
  local python = o.python or "python3"
  for i = 1, FILES do
    files[i] = ("%s/%d.mp4"):format(dir.path, i)
    clips.write(files[i], 10)
  end
  decode(python, files, o.seconds, out)
  tables(python, o.rows or 1000000, dir.path, out)
  return out
end

return readers
