--- docs/prompt.md: every line of the first hour, run in order in one session.
local base = require "moonreel.core.base"
local printed = require "spec.support.printed"
local T = require "moonreel.core.tensor"
local weights = require "datasets.demo.weights"

describe("docs/prompt.md", function()
  local dir, session

  local function tensor(seed, shape) return T.new("f32", shape):fill_normal(seed, "doc") end

  local function write(path, tensors)
    local rows = {}
    for name, t in pairs(tensors) do
      rows[#rows + 1] = { name = name, dtype = t.dtype, shape = t.shape, ptr = t:bytes() }
    end
    table.sort(rows, function(a, b) return a.name < b.name end)
    require("moonreel.ckpt").write(path, rows)
  end

  setup(function()
    dir = os.tmpname()
    os.remove(dir)
    base.make_dir(dir .. "/clips")
    local w2, w10 = tensor(1, { 4, 8 }), tensor(2, { 8 })
    write(dir .. "/a.safetensors", { ["blocks.2.w"] = w2, ["blocks.10.w"] = w10,
      head = tensor(3, { 2 }) })
    write(dir .. "/b.safetensors",
      { ["net.blocks.2.w"] = w2, ["net.blocks.10.w"] = tensor(4, { 8 }),
      ["net.head"] = tensor(3, { 2 }) })
    for i = 1, 2 do
      require("moonreel.data").encode(("%s/clips/%d.mp4"):format(dir, i),
        ("\x60"):rep(6 * 3 * 32 * 32), { frames = 6, height = 32, width = 32, fps = 8 })
    end
    weights.t5(dir .. "/t5", 1)
    weights.vae(dir .. "/vae", 1)
    require("moonreel.data").ingest(dir .. "/clips", dir .. "/clips.mrx")
    session = require("moonreel.repl").new()
    session.env.SCRATCH = dir
  end)
  teardown(function() base.remove_dir(dir) end)

  local text = base.read_file("docs/prompt.md")
  for title, block in text:gmatch("\n## ([^\n]*)\n.-```lua\n(.-)```") do
    it("runs: " .. title, function()
      for line in block:gmatch("[^\n]+") do
        local code, want = line:match("^(.-)%s*%-%->%s*(.-)%s*$")
        local told, state = printed(session.feed, session, code or line)
        if title ~= "When something goes wrong" then
          assert.is_true(state == "done" or state == "more", line .. "\n" .. told)
        end
        if want then
          assert.is_true(told:find(want, 1, true) ~= nil, line .. "\n" .. told)
        end
      end
    end)
  end
end)
