--- A plan as one page for a browser: it loads nothing else and runs no script.
-- @module moonreel.plan.page
local held = require "moonreel.plan.held"
local listing = require "moonreel.text.listing"
local plan = require "moonreel.plan"
local show = require "moonreel.plan.show"
local timeline = require "moonreel.plan.timeline"

local page = {}

local STYLE = [[
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 66em; padding: 0 1em;
  color: #222; background: #fff; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .1em .6em; text-align: right; } th { font-weight: 600; }
td, th { white-space: nowrap; } td:first-child, th:first-child { text-align: left; }
td:has(.bar), th:last-child { text-align: left; } p, li { overflow-wrap: anywhere; }
.bar { display: flex; height: 1.1em; width: 22em; background: #eee; }
.bar i { display: block; height: 100%; }
.row { position: relative; height: 1.4em; background: #f4f4f4; margin: .2em 0; }
.row i { position: absolute; top: 0; height: 100%; min-width: 1px; }
.row b { position: absolute; left: .3em; padding: 0 .2em; font-weight: 400; background: #fffc; }
.axis { position: relative; height: 1.6em; color: #555; border-top: 1px solid #999; }
.axis span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.axis span:first-child { transform: none; } .axis span:last-child { transform: translateX(-100%); }
.no { color: #b00020; } section { border-top: 1px solid #ccc; margin-top: 3em; }
svg { background: #f4f4f4; }]]

-- Colours of the events, which colour-blind readers can distinguish, too. Ref: Okabe and Ito 2008,
-- Color Universal Design.
local colours = { encode = "#cc79a7", forward = "#56b4e9", recompute = "#0072b2",
  backward = "#e69f00", exchange = "#009e73", exposed = "#d55e00", slowest = "#999999",
  update = "#000000", gather = "#009e73", reduce = "#d55e00", input = "#f0e442",
  decode = "#56b4e9", files = "#e69f00", read = "#f0e442", waits = "#999999" }
local MEMORY = "#0072b2"

local function escape(text)
  return (tostring(text):gsub("[&<>\"]",
    { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }))
end

local function cells(tag, values)
  local out = {}
  for i, value in ipairs(values) do
    out[i] = ("<%s>%s</%s>"):format(tag, value, tag)
  end
  return "<tr>" .. table.concat(out) .. "</tr>\n"
end

-- a bar of parts {share, colour, title}
local function bar(parts)
  local out = {}
  for i, one in ipairs(parts) do
    out[i] = ('<i style="width:%.3f%%;background:%s" title="%s"></i>'):format(100 * one[1], one[2],
      escape(one[3]))
  end
  return '<div class="bar">' .. table.concat(out) .. "</div>"
end

local TICKS = 3

-- an axis from 0 to `most` below a picture, with labels by `format`
local function axis(most, format)
  local out = {}
  for i = 0, TICKS do
    out[#out + 1] = ('<span style="left:%.0f%%">%s</span>'):format(100 * i / TICKS,
      i == 0 and "0" or escape(format(most * i / TICKS)))
  end
  return '<div class="axis">' .. table.concat(out) .. "</div>"
end

-- bytes outside the memory of the device have no bar
local function memory_table(p)
  local row, m, out = p.largest, p.mesh.machine, {}
  for _, kind in ipairs(held.kinds) do
    local bytes = row.bytes[kind[1]] or 0
    if bytes > 0 then
      local inside = m.cpu or kind[3] == "device"
      out[#out + 1] = cells("td", { escape(kind[2]), listing.size(bytes), inside and "" or kind[3],
        inside and bar { { bytes / m.memory_bytes, MEMORY, kind[2] } } or "" })
    end
  end
  out[#out + 1] = cells("td", { "", "", "", axis(m.memory_bytes, listing.size) })
  return "<table>" .. cells("th", { "what", "bytes", "", "of the memory" })
    .. table.concat(out) .. "</table>\n"
end

-- bytes of the arena over the nodes of a step, as an area
local function profile_picture(row)
  local points, most = {}, 0
  for _, bytes in ipairs(row.profile) do
    most = math.max(most, bytes)
  end
  for i, bytes in ipairs(row.profile) do
    points[i] = ("%.1f,%.1f"):format((i - 1) / (#row.profile - 1) * 800, 160 - 150 * bytes
      / math.max(most, 1))
  end
  local lines = {}
  for i = 1, 3 do
    local y = 160 - 150 * i / 3
    lines[i] = ('<line x1="0" x2="800" y1="%.1f" y2="%.1f" stroke="#999" stroke-dasharray="4"/>'
      .. '<text x="4" y="%.1f" font-size="12">%s</text>'):format(y, y, y + 13,
      escape(listing.size(most * i / 3)))
  end
  return ('<svg width="100%%" viewBox="0 0 800 160" role="img"><polygon '
    .. 'points="0,160 %s 800,160" fill="%s" fill-opacity="0.6"/>%s</svg>\n%s'
    .. '<p>bytes, over the ops of the step from its first to its last</p>\n'):format(
    table.concat(points, " "), MEMORY, table.concat(lines), axis(100, function(v)
      return ("%.0f %%"):format(v)
    end))
end

-- parts of a step, and what the legend says about them; the same of a job that writes clips
local PARTS = { "encode", "forward", "recompute", "backward", "exchange", "exposed", "slowest",
  "update", legend = "exchange: communication of ranks that share tokens, clips or layers within a "
    .. "micro-step; exposed: communication of weights and gradients that no computation hides; "
    .. "slowest: the wait for the slowest rank" }
local WRITES = { "encode", "decode", "files", "waits", legend = "files: clips are written, each "
  .. "with its original; waits: for clips that decoder processes read" }

local function bucket_table(p)
  local longest, out, names = 0, {}, p.writes and WRITES or PARTS
  for _, b in ipairs(p.buckets) do
    longest = math.max(longest, b.seconds.step)
  end
  for _, b in ipairs(p.buckets) do
    local parts = {}
    for _, part in ipairs(names) do
      local seconds = math.max(0, b.seconds[part])
      parts[#parts + 1] = { seconds / longest, colours[part],
        part .. " " .. show.seconds(seconds) }
    end
    local memory = ('<span class="%s">%s</span>'):format(b.fits and "" or "no",
      listing.size(b.total))
    out[#out + 1] = cells("td", { escape(plan.bucket_name(b)), b.batch, memory,
      show.seconds(b.seconds.step), ("%.0f %%"):format(100 * b.share_of_peak), bar(parts) })
  end
  out[#out + 1] = cells("td", { "", "", "", "", "", axis(longest, show.seconds) })
  local legend = {}
  for i, part in ipairs(names) do
    legend[i] = ('<span style="color:%s">&#9632;</span> %s'):format(colours[part], part)
  end
  return "<table>" .. cells("th", { "bucket", "batch", "memory", "step", "of peak", "seconds" })
    .. table.concat(out) .. "</table>\n<p>" .. table.concat(legend, " &nbsp; ") .. "</p>\n<p>"
    .. (p.writes and WRITES.legend or PARTS.legend) .. "</p>\n"
end

-- names of the streams
local STREAMS <const> = { compute = "computing", comm_intra = "exchange within nodes",
  comm_inter = "exchange between nodes", h2d = "copies to the device",
  d2h = "copies to the host", disk = "disk", read = "decoder processes", files = "files" }

-- a row per stream with its events
local function timeline_rows(row)
  local how, out = row.schedule, {}
  for _, stream in ipairs(timeline.busy(how)) do
    local parts = {}
    for i, event in ipairs(how.events) do
      if event.stream == stream.stream then
        local from, to = how.times.start[i], how.times.finish[i]
        local form = '<i style="left:%.3f%%;width:%.3f%%;background:%s" title="%s %s"></i>'
        parts[#parts + 1] = form:format(100 * from / how.seconds,
          100 * (to - from) / how.seconds, colours[event.name] or "#999", event.name,
          show.seconds(to - from))
      end
    end
    out[#out + 1] = ('<div class="row">%s<b>%s</b></div>\n'):format(table.concat(parts),
      STREAMS[stream.stream])
  end
  out[#out + 1] = axis(how.seconds, show.seconds)
  return table.concat(out)
end

-- text about parts of a step that the table counts but the picture does not show: it shows the last
-- micro-step and the update
local function parallel_text(row)
  local s, drawn = row.seconds, row.schedule.seconds
  local before = s.step - s.slowest - drawn
  local parts = { ("drawn are %s"):format(show.seconds(drawn)) }
  if before > 1e-6 then
    parts[#parts + 1] = ("earlier micro-steps take %s"):format(show.seconds(before))
  end
  if s.slowest > 0 then
    parts[#parts + 1] = ("the slowest rank adds %s"):format(show.seconds(s.slowest))
  end
  return table.concat(parts, ", ")
end

-- the time and cost of the whole run
local function course_text(p)
  local c, gpus = p.course, not p.mesh.machine.cpu
  return ("<p>%s steps (%s): %s%s%s</p>\n"):format(show.count(c.steps), escape(c.from),
    show.hours(c.hours), gpus and (", %s GPU hours"):format(show.count(c.gpu_hours)) or "",
    c.cost and (", cost %s at %s for a GPU's hour"):format(show.count(c.cost),
      p.mesh.machine.price_hour) or "") .. (c.clips and ("<p>%s clips, %s of files</p>\n"):format(
      show.count(c.clips), listing.size(c.disk_bytes)) or "")
end

-- the page of one plan
local function section(p)
  local out, slowest = {}, p.slowest
  local function put(form, ...) out[#out + 1] = form:format(...) end
  put("<p>%s%s</p>\n", show.parameters(p),
    p.mesh.ranks > 1 and (", ZeRO %d"):format(p.mesh.zero) or "")
  put("%s", p.course and course_text(p) or "")
  local bad = show.too_large(p)
  put("%s", bad and ('<p class="no">%s</p>\n'):format((escape(bad):gsub("\n", "<br/>"))) or "")
  put("<h2>Memory of one rank: %s of %s, in bucket %s</h2>\n", listing.size(p.largest.total),
    listing.size(p.mesh.machine.memory_bytes), escape(plan.bucket_name(p.largest)))
  put("%s", memory_table(p))
  put("<h2>Activations over its step</h2>\n%s", profile_picture(p.largest))
  put("<h2>Buckets</h2>\n%s", bucket_table(p))
  put("<h2>The longest step, bucket %s: %s</h2>\n<p>%s</p>\n%s",
    escape(plan.bucket_name(slowest)), show.seconds(slowest.seconds.step), parallel_text(slowest),
    timeline_rows(slowest))
  put("<h2>Notes</h2>\n<ul>\n")
  for _, note in ipairs(p.notes) do
    put("<li>%s</li>\n", escape(note))
  end
  put("</ul>\n")
  return table.concat(out)
end

-- a row per stage and a total
local function stage_table(plans)
  local columns, rows = show.stage_table(plans)
  local titles, out = {}, {}
  for i, column in ipairs(columns) do
    titles[i] = column.title or column.key
  end
  for i, row in ipairs(rows) do
    local values = {}
    for k, column in ipairs(columns) do
      local value = row[column.key]
      values[k] = value and escape(column.format and column.format(value, row) or value) or ""
    end
    out[i] = cells("td", values)
  end
  return "<table>" .. cells("th", titles) .. table.concat(out) .. "</table>\n"
end

-- the title: the recipe, the run's name if there is one, the stage
local function title_of(p, several)
  local name = p.name == p.recipe and p.recipe or ("%s (%s)"):format(p.name, p.recipe)
  return name .. (p.stage and not several and ", stage " .. p.stage or "")
end

--- Plans as a page: one, or the stages of a recipe with their sum.
---@param plans table[]  from plan.of; several have a stage
---@return string html
function page.html(plans)
  local out, first = {}, plans[1]
  local function put(form, ...) out[#out + 1] = form:format(...) end
  put('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n<title>%s</title>\n'
    .. '<style>%s</style></head><body>\n', escape(title_of(first, #plans > 1)), STYLE)
  put("<h1>%s on %s</h1>\n", escape(title_of(first, #plans > 1)), escape(first.mesh:text()))
  if #plans == 1 then
    put("%s", section(first))
  else
    put("%s", stage_table(plans))
    for _, p in ipairs(plans) do
      put("<section><h1>Stage %s</h1>\n%s</section>\n", escape(p.stage), section(p))
    end
  end
  put("</body></html>\n")
  return table.concat(out)
end

return page
