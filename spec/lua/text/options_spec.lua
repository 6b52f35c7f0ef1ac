--- Options of Lua functions are declared once; a misspelled name is an error.
local fails = require "spec.support.fails"
local options = require "moonreel.text.options"

describe("options", function()
  local read = options.declare("spec.call", {
    { "seed", "integer", "of everything", default = 7 },
    { "scale", "number", "of the noise" },
    { "map", "table|function", "renames" },
    { "index", "moonreel.Index", "where the clips are" },
  })
  teardown(function() options.declared["spec.call"] = nil end)

  it("fill in defaults and leave the caller's table unchanged", function()
    local given = { scale = 2 }
    local o = read(given)
    assert.same({ seed = 7, scale = 2 }, o)
    assert.same({ scale = 2 }, given)
    assert.same({ seed = 7 }, read(nil))
    assert.equal(false, options.declare("spec.call",
      { { "wait", "boolean", "", default = false } })().wait)
  end)

  it("refuse a field that is not declared, with the nearest name or with all names", function()
    fails("MR_E_USAGE", "spec%.call: no option 'sede', did you mean 'seed'%?", read, { sede = 1 })
    fails("MR_E_USAGE", "spec%.call: no option 'banana'; it takes seed, scale, map, index", read,
      { banana = 1 })
    fails("MR_E_USAGE", "spec%.call: options have names, got %[1%]", read, { 5 })
    fails("MR_E_USAGE", "spec%.call: expected a table of options, got string", read, "seed")
  end)

  it("refuse another kind", function()
    fails("MR_E_USAGE", "seed: expected integer, got number", read, { seed = 1.5 })
    fails("MR_E_USAGE", "scale: expected number, got text", read, { scale = "2" })
    fails("MR_E_USAGE", "map: expected table|function, got boolean", read, { map = true })
    -- an integer is a number, and an object of a class is checked by its user
    assert.equal(3, read({ scale = 3 }).scale)
    assert.equal(print, read({ map = print }).map)
    assert.same({}, read({ index = {} }).index)
  end)

  -- the functions that take options, each with a misspelled name
  local faces = {
    ["data.loader"] = function() require("moonreel.data").loader { sede = 5 } end,
    ["sample.open"] = function() require("moonreel.sample").open("x", { emma = true }) end,
    ["diff"] = function() require("moonreel.ckpt.compare").diff({}, {}, { mapp = {} }) end,
    ["ckpt:find"] = function() require("moonreel.ckpt.numbers").find({}, { nonfinit = true }) end,
    ["plot"] = function() require("moonreel.look.tensor").plot({ 1 }, { pgn = "x" }) end,
    ["hist"] = function() require("moonreel.look.tensor").draw_hist({ 1 }, { bin = 3 }) end,
    ["decode"] = function() require("moonreel.repl.data").decode("x", { frame = 3 }) end,
    ["block"] = function() require("moonreel.repl.graph").block({}, "x", { recpe = "y" }) end,
    ["nn.scope"] = function() require("moonreel.nn").scope({}, "", { frozn = true }) end,
    ["nn.Linear"] = function()
      local nn = require "moonreel.nn"
      nn.Linear(nn.scope {}, "x", 2, 2, { bais = false })
    end,
    ["trainer.run"] = function() require("moonreel.trainer").run({}, { wirte = print }) end,
    ["rflow.ratio"] = function() require("moonreel.diffusion.rflow").ratio({}, { scal = 2 }) end,
  }
  for who, call in pairs(faces) do
    it("are checked by " .. who, function()
      fails("MR_E_USAGE", who:gsub("%p", "%%%0") .. ": no option '.-', did you mean '", call)
    end)
  end
end)
