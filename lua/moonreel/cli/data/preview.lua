--- moonreel data preview: frames and captions of some samples.
-- @module moonreel.cli.data.preview
local target = require "moonreel.cli.target"

-- rows by name, or `count` rows evenly spread over the index
local function chosen(index, opts)
  local rows = {}
  for i, name in ipairs(opts.id or {}) do
    rows[i] = target.row(index, name)
  end
  local wanted = #rows == 0 and math.min(#index, opts.count or 8) or 0
  for i = 0, wanted - 1 do
    rows[#rows + 1] = index:row(1 + (wanted == 1 and 0 or i * (#index - 1) // (wanted - 1)))
  end
  return rows
end

return {
  words = "NAME.mrx -o SHEET.png",
  summary = "draw frames of some samples in one picture, a line each, with their captions",
  output = true,
  options = {
    { "-o, --output SHEET.png", "the picture" },
    { "--count N", "number of samples, evenly spread over the index (default: 8)", least = 1 },
    { "--id K", "show this sample: its row, counted from 1, its key or its path; may be given "
      .. "several times", many = true },
    { "--frames N", "frames of each sample, from the first to the last (default: 6)", least = 1 },
  },
  run = function(opts, _, path)
    local index <close> = require("moonreel.data").open(path)
    local rows = chosen(index, opts)
    local failed, height, width = require("moonreel.data.sheet").write(opts.output, rows,
      { frames = opts.frames })
    local list = {}
    for i, row in ipairs(rows) do
      list[i] = { row = row.id + 1, frames = row.frames, height = row.height, width = row.width,
        fps = row.fps, path = row.path, text = row.text }
    end
    if opts.json then
      local json, bad = require "moonreel.core.json", {}
      for i, one in ipairs(failed) do
        bad[i] = { row = one.row.id + 1, detail = one.why }
      end
      print(json.encode({ output = opts.output, height = height, width = width,
        rows = json.array(list), failed = json.array(bad) }, { indent = 2 }))
      return 0
    end
    local short = require("moonreel.text.table").short
    io.write(require("moonreel.text.table").text({ { key = "row", right = true },
      { key = "frames", right = true }, { key = "height", right = true },
      { key = "width", right = true }, { key = "fps", right = true }, { key = "path" },
      { key = "text", format = short } }, list))
    print(("%s: %d x %d pixels"):format(opts.output, width, height))
    for _, one in ipairs(failed) do
      print("  cannot be read: " .. one.why)
    end
    return 0
  end,
}
