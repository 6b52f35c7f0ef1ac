--- The parts of a run, found by the types that recipes name, and the cost of a pass over them.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local pipeline = require "moonreel.models.pipeline"

describe("a pipeline", function()
  local function parts(vae, text_encoder, model)
    return pipeline.new({ vae = { type = vae },
      text_encoder = { type = text_encoder, width = 32, rows = 64, max_length = 24, ngrams = 2,
        num_heads = 2 },
      model = { type = model or "STDiT3", depth = 1, hidden_size = 32, num_heads = 2 } }, "f32")
  end

  it("finds its parts by the types that their fields declare", function()
    assert.equal(24, parts("dct", "bytes").autoencoder.channels)
  end)

  it("lists the inputs of its model other than text and time", function()
    local plain = parts("dct", "bytes")
    assert.same({ false, false }, { plain:takes "cond", plain:takes "guidance" })
    local report = setmetatable({ model = { conditions = function() return { cond = {} } end } },
      { __index = plain })
    assert.same({ true, false }, { report:takes "cond", report:takes "guidance" })
  end)

  it("lists the known types when a type is unknown", function()
    local ok, problem = pcall(parts, "dct", "bytes", "autoencoder_2d")
    assert.is_false(ok)
    assert.equal("MR_E_RECIPE", problem.code)
    assert.matches("model.type = 'autoencoder_2d' is not built in this version; built so far: "
      .. "OpenSoraVAE_V1_2, STDiT3, STDiT3%-3B/2, STDiT3%-XL/2, dc_ae, flux, hunyuan_vae$",
      tostring(problem))
  end)

  -- Predictions for two texts, by name: `text` of the texts, `null` of the null caption, `guided`
  -- of both in one pass; and the pictures of a latent, with the autoencoder's facts about it.
  local function predictions()
    local pipe = parts("dct", "bytes")
    local run = E.new(E.device("cpu", 1), pipe.params, {})
    run:init(1)
    for i, p in ipairs(pipe.params:list()) do
      -- zero weights would hide errors
      if not p.frozen then
        run:set_param("w", p.name, T.new("f32", p.shape):fill_normal(2, "w", i) * 0.2)
      end
    end
    local g = G.graph(pipe.params)
    local dims = { 2, 24, 2, 4, 4 }
    local x, text = g:input("x", "f32", dims), pipe.text:inputs(g, 2)
    local len = g:input("len", "i32", { 4 })
    local t, fps = g:const(T.from({ 2 }, { 900, 100 })), g:const(T.from({ 2 }, { 24, 8 }))
    local function twice(v) return G.concat({ v, v }, 0) end
    local function io(change)
      local common = { x = x, t = t, fps = fps, text = text, height = 32, width = 32 }
      return setmetatable(change, { __index = common })
    end
    local function drop(flags) return { drop = g:const(T.from({ 2 }, flags, "bool")) } end
    g:output("text", pipe:predict(g, io(drop { 0, 0 })))
    g:output("null", pipe:predict(g, io(drop { 1, 1 })))
    g:output("second dropped", pipe:predict(g, io(drop { 0, 1 })))
    g:output("without drop", pipe:predict(g, io {}))
    g:output("guided", pipe:predict_guided(g, io { x = twice(x), t = twice(t), fps = twice(fps),
      text_len = len, copies = 2 }))
    g:output("unguided", pipe:predict_guided(g, io { text_len = text.len, copies = 1 }))
    g:finish()
    local prog = run:compile(g)
    local tokens = pipe.text:tokens { "a red circle", "blue" }
    pipe.text:set(prog, tokens)
    prog:set("len", T.from({ 4 }, { 12, 4, 12, 4 }, "i32"))
    prog:set("x", T.new("f32", dims):fill_normal(3, "x"))
    prog:run()
    return function(name) return prog:get(name) end
  end

  local function largest(t)
    local most = 0
    for _, v in ipairs(t:totable()) do
      most = math.max(most, math.abs(v))
    end
    return most
  end

  it("predicts for the text, or for the null caption when the text is dropped", function()
    local get = predictions()
    assert.equal(0, largest(get "text" - get "without drop"))
    assert.is_true(largest(get "text" - get "null") > 1e-3)
    local mixed = get "second dropped"
    assert.equal(0, largest(mixed:slice(0, 0, 1) - get "text":slice(0, 0, 1)))
    assert.equal(0, largest(mixed:slice(0, 1, 2) - get "null":slice(0, 1, 2)))
  end)

  it("puts the text first and the null caption second for guidance", function()
    local get = predictions()
    local both = get "guided"
    -- rows of a larger batch may be summed in another order
    assert.is_true(largest(both:slice(0, 0, 2) - get "text") < 1e-4)
    assert.is_true(largest(both:slice(0, 2, 4) - get "null") < 1e-4)
    assert.equal(0, largest(get "unguided" - get "text"))
  end)
end)
