--- Options of the bindings are declared once. A misspelled name, another type or a number out of
-- range is an error that names the option.
-- Covers: core/bind/options.c
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local ckpt = require "moonreel.core.ckpt"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local index = require "moonreel.core.index"
local json = require "moonreel.core.json"
local loader = require "moonreel.core.loader"
local media = require "moonreel.core.media"
local process = require "moonreel.core.process"
local run = require "moonreel.core.run"

describe("options of a binding", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  -- each binding with a table of options, called with a misspelled name
  local function calls()
    local params = G.params "f32"
    return {
      { "exec.new", "poisn", "poison", function(o) E.new(E.device(), nil, o) end },
      { "exec.new: regions", "prefx", "prefix", function(o)
        E.new(E.device(), params, { regions = { o } })
      end },
      { "graph.graph", "no_inplce", "no_inplace", function(o) G.graph(nil, o) end },
      { "params:add", "frozn", "frozen", function(o) params:add(o) end },
      { "params:add, init", "knd", "kind",
        function(o) params:add { name = "w", shape = { 1 }, init = o } end },
      { "index.open", "verfy", "verify", function(o) index.open(dir.path, o) end },
      { "index.ingest", "thread", "threads",
        function(o) index.ingest(dir.path, dir.path .. "/x.mrx", o) end },
      { "json.encode", "indnet", "indent", function(o) json.encode({}, o) end },
      { "process.run", "qiuet", "quiet", function(o) process.run({ "/bin/true" }, "", o) end },
      { "process.limit", "memory_byte", "memory_bytes", process.limit },
      { "encode", "hieght", "height", function(o) media.encode(dir.path .. "/x.mp4", "", o) end },
      { "encoder", "qualtiy", "quality", function(o) media.encoder(dir.path .. "/x.mp4", o) end },
      { "decode", "interal", "interval", function(o) media.decode(dir.path .. "/x.mp4", o) end },
    }
  end

  it("with a misspelled name is refused, with the nearest name", function()
    for _, call in ipairs(calls()) do
      fails("MR_E_USAGE", ("%s: no option '%s', did you mean '%s'%%?"):format(call[1],
        call[2], call[3]), call[4], { [call[2]] = true })
    end
  end)

  it("with a misspelled name is refused, also after another object", function()
    local lock <close> = run.lock(run.create(dir.path .. "/runs", "demo"))
    fails("MR_E_USAGE", "ckpt%.saver: no option 'kep', did you mean 'keep'%?", ckpt.saver, lock,
      { kep = 1 })
    dir:write("c/a.txt", "")
    require("moonreel.data").encode(dir.path .. "/c/a.mp4", ("\x60"):rep(3 * 16 * 16),
      { height = 16, width = 16 })
    require("moonreel.data").ingest(dir.path .. "/c", dir.path .. "/c.mrx")
    local ix <close> = index.open(dir.path .. "/c.mrx")
    fails("MR_E_USAGE", "loader%.new: no option 'sede', did you mean 'seed'%?", loader.new, ix,
      { sede = 5 })
  end)

  it("with an unknown name is refused with all known names", function()
    fails("MR_E_USAGE", "graph%.graph: no option 'banana'; it takes no_inplace, no_cheap, "
      .. "no_fuse, fresh_gradients, no_save", G.graph, nil, { banana = true })
  end)

  it("without a name, or outside a table, is refused", function()
    fails("MR_E_USAGE", "graph%.graph: options have names, got %[1%]", G.graph, nil, { true })
    fails("MR_E_USAGE", "graph%.graph: expected a table of options, got boolean", G.graph, nil,
      true)
  end)

  it("of another type or out of range is refused as a whole", function()
    fails("MR_E_USAGE", "exec%.new: poison: expected boolean, got number", E.new, E.device(),
      nil, { poison = 1 })
    fails("MR_E_USAGE", "json%.encode: indent: expected integer, got 1.5", json.encode, {},
      { indent = 1.5 })
    fails("MR_E_USAGE", "json%.encode: indent: expected integer, got text", json.encode, {},
      { indent = "text" })
    fails("MR_E_USAGE", "json%.encode: indent: %-1; expected 0 to 2147483647", json.encode, {},
      { indent = -1 })
    -- a value that only fits 64 bits must not lose its upper half
    fails("MR_E_USAGE", "decode: frames: 4294967297; expected 0 to 2147483647", media.decode, "x",
      { frames = (1 << 32) + 1 })
    fails("MR_E_USAGE", "params:add: name: expected text, got number",
      function() G.params("f32"):add { name = 3 } end)
  end)

  it("that is missing has its default", function()
    local params = G.params "f32"
    params:add { name = "w", shape = { 2 }, init = { kind = "normal" } }
    local row = params:list()[1]
    assert.same({ 1, 1, false, false }, { row.decay, row.lr_factor, row.frozen, row.buffer })
    assert.equal('{"a":1}', json.encode({ a = 1 }, {}))
    assert.equal('{"a":1}', json.encode({ a = 1 }, nil))
    assert.equal('{\n   "a": 1\n}', json.encode({ a = 1 }, { indent = 3 }))
  end)
end)
