--- A plan as one page for a browser: nothing is loaded from elsewhere and nothing runs in it.
-- @module moonreel.plan.page
local listing = require "moonreel.text.listing"
local plan = require "moonreel.plan"
local show = require "moonreel.plan.show"
local timeline = require "moonreel.plan.timeline"

local page = {}

local STYLE = [[
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em;
  color: #222; background: #fff; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .1em .6em; text-align: right; } th { font-weight: 600; }
td:first-child, th:first-child { text-align: left; }
.bar { display: flex; height: 1.1em; width: 22em; background: #eee; }
.bar i { display: block; height: 100%; }
.row { position: relative; height: 1.4em; background: #f4f4f4; margin: .2em 0; }
.row i { position: absolute; top: 0; height: 100%; min-width: 1px; }
.row b { position: absolute; left: .3em; font-weight: 400; color: #555; }
.no { color: #b00020; } svg { background: #f4f4f4; }]]

-- colours of what runs, and of what lies in memory
local colours = { encode = "#9467bd", forward = "#1f77b4", recompute = "#aec7e8",
  backward = "#ff7f0e", exchange = "#8c564b", exposed = "#d62728", slowest = "#7f7f7f",
  update = "#2ca02c", gather = "#17becf", reduce = "#d62728", input = "#bcbd22" }

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

local function memory_table(p)
  local row, out = p.largest, {}
  for _, kind in ipairs(plan.kinds) do
    local bytes = row.bytes[kind[1]] or 0
    if bytes > 0 then
      out[#out + 1] = cells("td", { escape(kind[2]), listing.size(bytes), kind[3],
        bar { { bytes / p.mesh.machine.memory_bytes, kind[3] == "device" and "#1f77b4"
          or "#bcbd22", kind[2] } } })
    end
  end
  return "<table>" .. cells("th", { "what", "bytes", "where", "of the memory" })
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
  return ('<svg width="100%%" viewBox="0 0 800 160" role="img"><title>activations over the step, '
    .. 'at most %s</title><polygon points="0,160 %s 800,160" fill="#1f77b4"/></svg>\n'):format(
    listing.size(most), table.concat(points, " "))
end

local PARTS = { "encode", "forward", "recompute", "backward", "exchange", "exposed", "slowest",
  "update" }

local function bucket_table(p)
  local longest, out = 0, {}
  for _, b in ipairs(p.buckets) do
    longest = math.max(longest, b.seconds.step)
  end
  for _, b in ipairs(p.buckets) do
    local parts = {}
    for _, part in ipairs(PARTS) do
      local seconds = math.max(0, b.seconds[part])
      parts[#parts + 1] = { seconds / longest, colours[part],
        part .. " " .. show.seconds(seconds) }
    end
    local memory = ('<span class="%s">%s</span>'):format(b.fits and "" or "no",
      listing.size(b.total))
    out[#out + 1] = cells("td", { escape(plan.bucket_name(b)), b.batch, memory,
      show.seconds(b.seconds.step), ("%.0f %%"):format(100 * b.share_of_peak), bar(parts) })
  end
  local legend = {}
  for i, part in ipairs(PARTS) do
    legend[i] = ('<span style="color:%s">&#9632;</span> %s'):format(colours[part], part)
  end
  return "<table>" .. cells("th", { "bucket", "batch", "memory", "step", "of peak", "seconds" })
    .. table.concat(out) .. "</table>\n<p>" .. table.concat(legend, " &nbsp; ") .. "</p>\n"
end

-- a row per stream with what runs on it
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
      stream.stream)
  end
  return table.concat(out)
end

--- A plan as a page.
---@param p table  of plan.of
---@param slowest table  the bucket whose time line is shown
---@return string html
function page.html(p, slowest)
  local out = {}
  local function put(form, ...) out[#out + 1] = form:format(...) end
  put('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n<title>%s</title>\n'
    .. '<style>%s</style></head><body>\n', escape(p.name), STYLE)
  put("<h1>%s on %s</h1>\n<p>%s parameters, of them %s train, in %s, ZeRO %d</p>\n",
    escape(p.name), escape(p.mesh:text()), show.count(p.parameters), show.count(p.trained),
    p.dtype, p.mesh.zero)
  if p.course then
    put("<p>%s steps (%s): %.1f hours, %.1f GPU hours%s</p>\n", show.count(p.course.steps),
      escape(p.course.from), p.course.hours, p.course.gpu_hours,
      p.course.cost and (", cost %s"):format(show.count(p.course.cost)) or "")
  end
  put("<h2>Memory of one rank: %s of %s, in bucket %s</h2>\n", listing.size(p.largest.total),
    listing.size(p.mesh.machine.memory_bytes), escape(plan.bucket_name(p.largest)))
  put("%s", memory_table(p))
  put("<h2>Activations over its step</h2>\n%s", profile_picture(p.largest))
  put("<h2>Buckets</h2>\n%s", bucket_table(p))
  put("<h2>The longest step, bucket %s: %s</h2>\n%s", escape(plan.bucket_name(slowest)),
    show.seconds(slowest.schedule.seconds), timeline_rows(slowest))
  put("<h2>Notes</h2>\n<ul>\n")
  for _, note in ipairs(p.notes) do
    put("<li>%s</li>\n", escape(note))
  end
  put("</ul>\n</body></html>\n")
  return table.concat(out)
end

return page
