--- The memory of a rendering, predicted from few cells and compared with its real memory. A
-- rendering that does not fit is refused with a size that does.
-- Covers: lua/moonreel/sample/fit.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local codec = require "moonreel.codec"
local encoder = require "moonreel.encoder"
local fails = require "spec.support.fails"
local fit = require "moonreel.sample.fit"
local folder = require "spec.support.folder"
local ops = require "moonreel.core.op"
local weights = require "datasets.demo.weights"

describe("a rendering", function()
  local dir, coder, run
  setup(function()
    dir = folder.new()
    weights.vae(dir.path .. "/vae", 5)
    coder = codec.open(dir.path .. "/vae", {micro_frame_size = 5, device = E.device("cpu", 1)})
    run = E.new(E.device("cpu", 1), nil, {})
  end)
  teardown(function()
    run:close()
    coder:close()
    dir:remove()
  end)

  -- a step that needs its latents twice
  local graphs = {}
  local function step(r)
    local size, g = coder.auto:latent(r.frames, r.height, r.width), G.graph()
    local x = g:input("x", "f32", {r.batch, table.unpack(size)})
    g:output("out", ops.silu(x) + ops.exp(x))
    g:finish()
    graphs[#graphs + 1] = g
    return run:compile(g), size
  end

  it("has its memory predicted from a size of few cells", function()
    local asked
    local function counted(r)
      local prog, size = step(r)
      asked = size[2] * size[3] * size[4]
      return prog
    end
    local function predicted(frames, height, width)
      return fit.bytes(coder.auto, coder, {frames = frames, height = height, width = width,
        batch = 400}, counted)
    end
    -- the memory of a small size is exact
    local exact = predicted(5, 128, 128)
    assert.equal(2 * 16 * 16, asked)
    local m = step{frames = 5, height = 128, width = 128, batch = 400}:memory()
    -- each part of the autoencoder keeps its memory
    local parts = encoder.working_bytes(coder:decoders(5, 128, 128))
    assert.equal(m.arena + m.inputs + m.results + m.consts + parts, exact)
    -- four times the area; eight times the length is eight steps, and one piece of frames
    local four = predicted(5, 256, 256)
    assert.is_true(four > 3 * exact and four < 4.5 * exact, four / exact)
    local one, long = predicted(5, 1024, 1024), predicted(40, 1024, 1024)
    assert.is_true(asked <= 2048)
    assert.is_true(long > one and long < 8 * one)
    assert.is_true(one > 48 * exact and one < 72 * exact, one / exact)
  end)

  it("is refused when it does not fit, with a size that does", function()
    local r = {frames = 51, height = 720, width = 1280, batch = 4}
    fit.check(r, 1000, 1000)
    fails("MR_E_MEMORY", "sample: 51 frames of 720 x 1280, 4 at once, need about 8%.0 GB, and "
      .. "2%.0 GB are free; try: %-%-batch%-size 1, or %-%-size 352x640", fit.check, r, 8e9, 2e9)
    fails("MR_E_MEMORY", "try: %-%-size 224x400$", fit.check, r, 20e9, 2e9)
    local long = {frames = 9000, height = 32, width = 32, batch = 1}
    fails("MR_E_MEMORY", "try: %-%-num%-frames 900$", fit.check, long, 20e9, 2e9)
    long.frames = 1
    fails("MR_E_MEMORY", "try: more memory$", fit.check, long, 20e9, 2e9)
  end)
end)
