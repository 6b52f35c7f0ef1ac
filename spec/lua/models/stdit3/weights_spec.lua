--- Weights of PixArt-Sigma are read into STDiT3; null captions are shortened or extended.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local map = require "moonreel.models.stdit3.weights"

local fill = require "moonreel.ckpt.fill"
local stdit3 = require "moonreel.models.stdit3"

local layout = map.layouts[1]

describe("weights of PixArt-Sigma", function()
  it("are recognised by their single kind of blocks", function()
    assert.is_truthy(layout.is { ["blocks.0.scale_shift_table"] = true })
    assert.is_falsy(layout.is { ["blocks.0.scale_shift_table"] = true,
      ["spatial_blocks.0.scale_shift_table"] = true })
    assert.is_falsy(layout.is { ["blocks.0.w"] = true })
  end)

  it("are read one by one", function()
    local params = G.params "f32"
    stdit3.new(params, { depth = 2, hidden_size = 16, num_heads = 2, patch_size = { 1, 2, 2 },
      in_channels = 4, caption_channels = 6, model_max_length = 3, input_sq_size = 512,
      mlp_ratio = 4, pred_sigma = true, qk_norm = true })
    params:seal()
    -- a file with the tensors of such an image model, and with positions, which are computed
    local rows, given, keep = {}, {}, {}
    local function put(name, t)
      keep[#keep + 1] = t
      local ptr, bytes = t:ptr()
      rows[#rows + 1] = { name = "state_dict." .. name, dtype = "f32", shape = t.shape, ptr = ptr,
        bytes = bytes }
    end
    for i, p in ipairs(params:list()) do
      local name, found = p.name:gsub("^spatial_blocks%.", "blocks.")
      local of_images = not name:find("_norm%.") and (found == 1 or name:find("^[xyt]_")
        or name:find("^final"))
      if of_images then
        local shape = p.name == "x_embedder.proj.weight" and { 16, 4, 2, 2 } or p.shape
        local t = T.new("f32", shape):fill_normal(i, "spec")
        given[p.name] = t
        put(name, t)
      end
    end
    put("pos_embed", T.new("f32", { 1, 4, 16 }))
    local path = os.tmpname() .. ".safetensors"
    ckpt.write(path, rows)
    local source <close> = ckpt.open(path)
    local run <close> = E.new(E.device(), params, {})
    run:init(3)
    local before = run:param("w", "temporal_blocks.1.attn.qkv.weight"):totable()
    local report = fill.weights(run, params, source, { maps = { map } })
    os.remove(path)
    assert.same({ {}, {}, 1 }, { report.missing, report.unexpected, #report.dropped })
    for name, t in pairs(given) do
      local region = name == "y_embedder.y_embedding" and "frozen" or "w"
      assert.same(t:totable(), run:param(region, name):totable(), name)
    end
    assert.equal(#report.loaded, #keep - 1)
    assert.same(before, run:param("w", "temporal_blocks.1.attn.qkv.weight"):totable())
    -- 17 tensors of each temporal block, two norms of each spatial one, 4 of the rate, frequencies
    assert.equal(2 * 17 + 2 * 2 + 4 + 1, #report.fresh)
    assert.is_false(base.exists(path))
  end)

  it("get a time axis in their convolution when a token has one frame", function()
    local fit = map.fit["x_embedder.proj.weight"]
    local kernel = T.new("f32", { 8, 4, 2, 2 })
    local t, how = fit(kernel, { 8, 4, 1, 2, 2 })
    assert.same({ 8, 4, 1, 2, 2 }, t.shape)
    assert.equal("a time axis of 1", how)
    assert.is_nil(fit(kernel, { 8, 4, 2, 2, 2 }))
    assert.is_nil(fit(kernel, { 8, 4, 1, 4, 2 }))
    assert.is_nil(fit(T.new("f32", { 8, 16 }), { 8, 4, 1, 2, 2 }))
  end)

  it("get a null caption of the model's length", function()
    local fit = map.fit["y_embedder.y_embedding"]
    local rows = T.from({ 3, 2 }, { 1, 2, 3, 4, 5, 6 })
    local t, how = fit(rows, { 5, 2 })
    assert.same({ 1, 2, 3, 4, 5, 6, 5, 6, 5, 6 }, t:totable())
    assert.equal("extended to 5 rows by repeating the last one", how)
    t, how = fit(rows, { 2, 2 })
    assert.same({ 1, 2, 3, 4 }, t:totable())
    assert.equal("cut to 2 rows", how)
    assert.is_nil(fit(rows, { 3, 4 }))
    assert.is_nil(fit(T.new("f32", { 0, 2 }), { 3, 2 }))
  end)
end)
