--- Weights to start from: prefixes of their names, their shapes, and what the model has beyond
-- them.
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local folder = dofile "spec/support/folder.lua"
local start = require "moonreel.ckpt.start"

local PTH = "spec/golden/pth/"

local function tensor(shape, first)
  local values = {}
  for i = 1, T.count(shape) do
    values[i] = first + i - 1
  end
  return T.from(shape, values)
end

-- a file of tensors {name = tensor}
local function write(path, tensors)
  local rows = {}
  for name, t in pairs(tensors) do
    local ptr, bytes = t:ptr()
    rows[#rows + 1] = { name = name, dtype = t.dtype, shape = t.shape, ptr = ptr, bytes = bytes }
  end
  table.sort(rows, function(a, b) return a.name < b.name end)
  ckpt.write(path, rows)
end

-- the report of parameters filled from a file, and their tensors
local function read(path, params, how)
  local source <close> = ckpt.open(path)
  local got = {}
  local report = start.read(source, params, how or {}, function(p, t) got[p.name] = t end)
  return report, got
end

describe("start weights", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() base.remove_dir(dir.path) end)

  local params = { { name = "blocks.0.w", shape = { 4, 3 } }, { name = "h", shape = { 5 } },
    { name = "view", shape = { 3, 2 } } }

  for _, file in ipairs { "plain.pth", "legacy.pth", "nested.pth", "two.pth", "vae.pt" } do
    it("are found under prefixed names: " .. file, function()
      local report, got = read(PTH .. file, params)
      assert.same({ "blocks.0.w", "h", "view" }, report.loaded)
      assert.same({}, report.missing)
      local expected <close> = ckpt.open(PTH .. "expected.safetensors")
      local before = ({ nested = "state_dict.", two = "state_dict.", vae = "vae." })[
        file:match("^%w+")] or ""
      local name = file .. "/" .. before
      assert.same(expected[name .. "blocks.0.w"]:tensor():totable(), got["blocks.0.w"]:totable())
      assert.same(expected[name .. "view"]:tensor():totable(), got.view:totable())
      -- f16 becomes f32, because no op computes with f16
      assert.equal("f32", got.h.dtype)
      assert.same(expected[name .. "h"]:tensor():totable(), got.h:totable())
    end)
  end

  it("are found in modules and in shards", function()
    local module = { { name = "a.weight", shape = { 2, 3 } }, { name = "a.bias", shape = { 2 } } }
    for _, file in ipairs { "module.pth", "module_sd.bin", "parameters.pth" } do
      local report = read(PTH .. file, module)
      assert.same({ {}, {} }, { report.missing, report.unexpected }, file)
    end
    local report = read(PTH .. "pytorch_model.bin.index.json", { params[1], params[2] })
    assert.same({ "blocks.0.w", "h" }, report.loaded)
    assert.same({ "blocks.1.w", "blocks.2.w", "b", "ids" }, report.unexpected)
  end)

  it("are found under prefixes of wrappers, trainers and other programs", function()
    for _, before in ipairs { "_orig_mod.", "transformer.", "model.diffusion_model.", "ema_model.",
        "state_dict.module._orig_mod.", "model.transformer.", "ema_model.module.",
        "module._forward_module._orig_mod." } do
      write(dir.path .. "/wrapped.safetensors", { [before .. "blocks.0.w"] = tensor({ 2 }, 1) })
      local report, got = read(dir.path .. "/wrapped.safetensors",
        { { name = "blocks.0.w", shape = { 2 } } })
      assert.same({ { "blocks.0.w" }, {}, {} }, { report.loaded, report.missing,
        report.unexpected }, before)
      assert.same({ 1, 2 }, got["blocks.0.w"]:totable())
    end
    -- also inside a name
    write(dir.path .. "/wrapped.safetensors",
      { ["blocks.0._checkpoint_wrapped_module._orig_mod.w"] = tensor({ 2 }, 1) })
    assert.same({ "blocks.0.w" }, (read(dir.path .. "/wrapped.safetensors",
      { { name = "blocks.0.w", shape = { 2 } } })).loaded)
    -- a prefix that is part of the model's own name stays
    write(dir.path .. "/wrapped.safetensors", { ["transformer.w"] = tensor({ 2 }, 1) })
    assert.same({ "transformer.w" }, (read(dir.path .. "/wrapped.safetensors",
      { { name = "transformer.w", shape = { 2 } } })).loaded)
  end)

  it("without any matching name are reported with the nearest names of the model", function()
    local t = tensor({ 2 }, 1)
    write(dir.path .. "/far.safetensors", { ["net.0.attn.qkv.weight"] = t,
      ["net.1.attn.qkv.weight"] = t, ["net.0.mlp.fc1.bias"] = t, stem = t, last = t })
    local source <close> = ckpt.open(dir.path .. "/far.safetensors")
    assert.equal("'net.0.attn.qkv.weight' of the file is nearest to 'blocks.0.attn.qkv.weight' of "
      .. "the model\n  'net.0.mlp.fc1.bias' of the file is nearest to 'blocks.0.mlp.fc1.bias' of "
      .. "the model", (start.nearest(source, { { name = "blocks.0.attn.qkv.weight" },
        { name = "blocks.0.mlp.fc1.bias" }, { name = "blocks.1.attn.qkv.weight" } })
          :gsub("\n  'last'.*", ""):gsub("\n  'stem'.*", "")))
  end)

  it("that are not finite are reported when they have to be finite", function()
    write(dir.path .. "/nan.safetensors", { a = tensor({ 2 }, 1), b = tensor({ 3 }, 0 / 0) })
    local params_of = { { name = "a", shape = { 2 } }, { name = "b", shape = { 3 } } }
    assert.same({ "a", "b" }, (read(dir.path .. "/nan.safetensors", params_of)).loaded)
    local good, problem = pcall(read, dir.path .. "/nan.safetensors", params_of, { finite = true })
    assert.is_false(good)
    assert.equal(7, problem.exit)
    assert.matches("nan.safetensors: tensor 'b' %[3%]: 3 of 3 numbers are not finite",
      problem.message)
  end)

  it("include averages on request, and the second dictionary of a file is expected",
    function()
      local a, b = tensor({ 2 }, 1), tensor({ 2 }, 10)
      write(dir.path .. "/two.safetensors", { ["state_dict.module.w"] = a,
        ["state_dict_ema.w"] = b })
      local one = { { name = "w", shape = { 2 } } }
      local function values(how)
        local report, got = read(dir.path .. "/two.safetensors", one, how)
        assert.same({ { "w" }, {}, {} }, { report.loaded, report.unexpected, report.dropped })
        return got.w:totable()
      end
      assert.same({ 1, 2 }, values())
      assert.same({ 10, 11 }, values { average = true })
      -- a frozen parameter has no average
      one[1].frozen = true
      assert.same({ 1, 2 }, values { average = true })
    end)

  it("prefer f32 masters to weights for a model in f32", function()
    write(dir.path .. "/own.safetensors", { w = tensor({ 2 }, 1), ["master.w"] = tensor({ 2 }, 5),
      ["ema.w"] = tensor({ 2 }, 7), ["adam_m.w"] = tensor({ 2 }, 9) })
    local one = { { name = "w", shape = { 2 } } }
    for want, how in pairs { [1] = {}, [5] = { exact = true }, [7] = { average = true,
        exact = true } } do
      local report, got = read(dir.path .. "/own.safetensors", one, how)
      assert.equal(want, got.w:totable()[1])
      assert.same({}, report.unexpected)
    end
  end)

  it("report what is missing, what is unexpected and what has another shape", function()
    write(dir.path .. "/odd.safetensors", { a = tensor({ 2 }, 1), c = tensor({ 3 }, 1),
      ["layers.0.x"] = tensor({ 1 }, 1), ["layers.1.x"] = tensor({ 1 }, 1) })
    local report, got = read(dir.path .. "/odd.safetensors", { { name = "a", shape = { 2 } },
      { name = "b", shape = { 2 } }, { name = "c", shape = { 2 } } })
    assert.same({ { "a" }, { "b", "c" }, { "layers.0.x", "layers.1.x" } },
      { report.loaded, report.missing, report.unexpected })
    assert.is_nil(got.c)
    local text = tostring(start.table(report))
    assert.matches("missing +b +1 +not in the file", text)
    assert.matches("missing +c +1 +%[3%] in the file, %[2%] in the model", text)
    assert.matches("unexpected +layers%.%*%.x +2 +no parameter of this name", text)
    assert.matches("1 tensors loaded, 2 missing, 2 unexpected$", text)
    local function refused()
      return (select(2, pcall(start.refuse, "odd", report))).message
    end
    assert.matches("odd: 1 tensors are of another shape, the first is 'c', %[3%] in the file, "
      .. "%[2%] in the model; try: leave %-%-strict out", refused())
    report.differ = {}
    assert.matches("odd: 2 tensors are missing, the first is 'b'; try", refused())
    report.missing = {}
    assert.matches("odd: 2 tensors are unexpected, the first is 'layers.0.x'", refused())
    report.unexpected = {}
    start.refuse("odd", report)
  end)

  it("of another program are renamed by its layout", function()
    local map = { layouts = { { name = "Other", is = function(has) return has["old.0.w"] end,
      rename = { { "^old%.", "new." } }, dropped = { pos = "computed" },
      fresh = { { "^extra%.", "others have none", "extra.*" } } } },
      fit = { ["new.0.w"] = function(t, shape)
        return #t.shape == 1 and t:reshape(shape) or nil, "laid out"
      end } }
    write(dir.path .. "/other.safetensors", { ["model.old.0.w"] = tensor({ 4 }, 1),
      ["model.pos"] = tensor({ 1 }, 0), ["model.what"] = tensor({ 1 }, 0) })
    local report, got = read(dir.path .. "/other.safetensors", {
      { name = "new.0.w", shape = { 2, 2 } }, { name = "extra.0.a", shape = { 1 } },
      { name = "extra.1.a", shape = { 1 } }, { name = "none", shape = { 1 } } }, { maps = { map } })
    assert.same({ 2, 2 }, got["new.0.w"].shape)
    assert.same({ "none" }, report.missing)
    assert.same({ "model.what" }, report.unexpected)
    assert.equal("Other", report.layout)
    local text = tostring(start.table(report))
    assert.matches("resized +new.0.w +1 +%[4%] to %[2,2%]: laid out", text)
    assert.matches("dropped +model.pos +1 +computed", text)
    assert.matches("left fresh +extra.%* +2 +others have none", text)
    assert.matches("1 tensors loaded, 1 missing, 1 unexpected, names of Other$", text)
  end)

  it("report two tensors for one parameter", function()
    write(dir.path .. "/twice.safetensors", { w = tensor({ 1 }, 1),
      ["module.w"] = tensor({ 1 }, 2) })
    local report = read(dir.path .. "/twice.safetensors", { { name = "w", shape = { 1 } } })
    assert.equal(1, #report.dropped)
    assert.matches(" is the same parameter", report.dropped[1].why)
  end)

  it("that contradict their config.json are refused with field, tensor and both values", function()
    base.make_dir(dir.path .. "/hub")
    write(dir.path .. "/hub/model.safetensors", { ["w"] = tensor({ 2, 3 }, 1) })
    local maps = { { sizes = { { "width", "w", 2 } } } }
    local source <close> = ckpt.open(dir.path .. "/hub")
    start.check_sizes(source, maps)
    dir:write("hub/config.json", '{"width": 3, "other": 9}')
    start.check_sizes(source, maps)
    dir:write("hub/config.json", '{"width": 4}')
    local good, err = pcall(start.check_sizes, source, maps)
    assert.is_false(good)
    assert.matches("hub/config%.json: width is 4, but 'w' is %[2,3%]: its axis 1 has 3",
      err.message)
    -- blocks are counted by their numbers after any prefix; without blocks nothing is compared
    base.make_dir(dir.path .. "/deep")
    write(dir.path .. "/deep/model.safetensors", { ["module.b.0.w"] = tensor({ 1 }, 1),
      ["module.b.10.w"] = tensor({ 1 }, 2), ["module.b.9.w"] = tensor({ 1 }, 3) })
    maps = { { counts = { { "depth", "^b%.(%d+)%." }, { "depth", "^other%.(%d+)%." } } } }
    local deep <close> = ckpt.open(dir.path .. "/deep")
    dir:write("deep/config.json", '{"depth": 11}')
    start.check_sizes(deep, maps)
    dir:write("deep/config.json", '{"depth": 12}')
    good, err = pcall(start.check_sizes, deep, maps)
    assert.is_false(good)
    assert.matches("deep/config%.json: depth is 12, but counting blocks like that of '"
      .. "module%.b%.10%.w' gives 11", err.message)
  end)

  it("that are joined from several tensors are averages or masters on request",
    function()
      local path, tensors = dir.path .. "/made.safetensors", {}
      for at, prefix in ipairs { "", "ema.", "master.", "adam_m." } do
        tensors[prefix .. "a"] = tensor({ 2 }, 10 * at)
        tensors[prefix .. "b"] = tensor({ 1 }, 10 * at + 5)
      end
      write(path, tensors)
      local map = { made = function(name)
        return name == "ab" and { from = { "a", "b" }, how = "both as one",
          make = function(t) return require("moonreel.core.graph").concat(t, 0) end } or nil
      end }
      local ab = { { name = "ab", shape = { 3 } } }
      for _, case in ipairs { { {}, { 10, 11, 15 } }, { { average = true }, { 20, 21, 25 } },
          { { exact = true }, { 30, 31, 35 } } } do
        local how = case[1]
        how.maps = { map }
        local report, got = read(path, ab, how)
        assert.same(case[2], got.ab:totable())
        assert.same({ { name = "ab", why = "both as one" } }, report.made)
        assert.same({ {}, {} }, { report.missing, report.unexpected })
      end
      -- if one of the averages is missing, all are weights
      tensors["ema.b"] = nil
      write(path, tensors)
      local _, got = read(path, ab, { maps = { map }, average = true })
      assert.same({ 10, 11, 15 }, got.ab:totable())
    end)
end)
