--- `moonreel repl THING` opens the thing at the start, from a pipe as from a terminal.
local ckpt = require "moonreel.ckpt"
local folder = require "spec.support.folder"

describe("moonreel repl", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  local function typed(thing, line)
    return folder.moonreel("repl " .. thing, ("printf '%%s\\n' '%s' |"):format(line))
  end

  it("opens a recipe as r, weights as ckpt, an index as index", function()
    assert.matches("^r = settings of recipes/tiny/demo%.lua, hash %x+\n0%.001\n$",
      (typed("tiny/demo", "r.optim.lr")))
    local file = dir.path .. "/w.safetensors"
    ckpt.write(file, { { name = "x", dtype = "f32", shape = { 2 },
      ptr = string.pack("<ff", 1, 2) } })
    assert.matches("^ckpt = checkpoint .-1 tensors, .-not verified\n1%.5\n$",
      (typed(file, "ckpt.x:stats().mean")))
    require("moonreel.core.base").make_dir(dir.path .. "/clips")
    require("moonreel.data").encode(dir.path .. "/clips/a.mp4", ("\96"):rep(4 * 3 * 32 * 32),
      { frames = 4, height = 32, width = 32, fps = 8 })
    require("moonreel.data").ingest(dir.path .. "/clips", dir.path .. "/clips.mrx")
    assert.matches("^index = index .-1 samples.-\n4\n$",
      (typed(dir.path .. "/clips.mrx", "index[0].frames")))
  end)

  it("refuses other files and two things at once, with exit 2", function()
    local _, err, code = typed("nosuch", "1")
    assert.equal(2, code)
    assert.matches("^moonreel: nosuch: no such run", err)
    assert.equal(2, select(3, typed("a b", "1")))
  end)

  it("prints only results when the input is no terminal", function()
    assert.equal("2\n", (typed("", "1 + 1")))
  end)
end)
