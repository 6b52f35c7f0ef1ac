--- Files that torch wrote (spec/golden/pth) contain the tensors that torch reads from them.
local ckpt = require "moonreel.ckpt"

local folder = "spec/golden/pth/"
local files = { "kinds.pth", "kinds_legacy.pth", "kinds_protocol4.pth", "legacy.pth", "module.pth",
  "module_sd.bin", "nested.pth", "parameters.pth", "plain.pth", "pytorch_model-00001-of-00002.bin",
  "pytorch_model-00002-of-00002.bin", "sequential.pth", "sequential_protocol4.pth", "two.pth",
  "vae.pt", "without_sums.pth" }

describe("files of torch.save", function()
  local expected
  setup(function() expected = ckpt.open(folder .. "expected.safetensors") end)
  teardown(function() expected:close() end)

  it("may have the extension .ckpt", function()
    local dir = require("spec.support.folder").new()
    finally(function() dir:remove() end)
    local file <close> = assert(io.open(folder .. "plain.pth", "rb"))
    local plain <close> = ckpt.open(folder .. "plain.pth")
    local same <close> = ckpt.open(dir:write("weights.ckpt", file:read "a"))
    assert.same(plain:names(), same:names())
  end)

  -- names of a file as expected.safetensors has them
  local function names_of(file)
    local names = {}
    for _, name in ipairs(expected:names()) do
      names[#names + 1] = name:sub(1, #file + 1) == file .. "/" and name:sub(#file + 2) or nil
    end
    table.sort(names)
    return names
  end

  local function same(c, name, full)
    local got, want = c:info(name), expected:info(full)
    assert.same({ full, want.dtype, want.shape }, { full, got.dtype, got.shape })
    assert.is_true(c:read(name) == expected:read(full), full)
  end

  for _, file in ipairs(files) do
    it("contain what torch reads: " .. file, function()
      local c <close> = ckpt.open(folder .. file)
      local names = c:names()
      table.sort(names)
      assert.same(names_of(file), names)
      for _, name in ipairs(names) do
        same(c, name, file .. "/" .. name)
      end
    end)
  end

  it("are opened together through their index", function()
    local c <close> = ckpt.open(folder .. "pytorch_model.bin.index.json")
    assert.equal(6, #c:names())
    same(c, "blocks.2.w", "pytorch_model-00001-of-00002.bin/blocks.2.w")
    same(c, "ids", "pytorch_model-00002-of-00002.bin/ids")
    c:verify()
  end)

  it("are refused with the name of what cannot be read", function()
    local c <close> = ckpt.open(folder .. "kinds.pth")
    local why = {}
    for _, one in ipairs(c:refused()) do
      why[one.name] = one.why
    end
    assert.same({ complex = "its elements are complex64",
      conjugated = "its elements are conjugated or negated when torch reads them",
      negated = "its elements are conjugated or negated when torch reads them",
      sparse = "it is sparse", quantised = "it is quantised",
      nine = "it has more than 8 dimensions" }, why)
  end)

  describe("in a folder", function()
    local folders = dofile "spec/support/folder.lua"
    local base = require "moonreel.core.base"
    local dir

    before_each(function() dir = folders.new() end)
    after_each(function() base.remove_dir(dir.path) end)

    local function copy(file, name) dir:write(name, base.read_file("spec/golden/pth/" .. file)) end

    it("are opened when there is one, or from model/", function()
      copy("module_sd.bin", "pytorch_model.bin")
      local c <close> = ckpt.open(dir.path)
      assert.same({ "a.weight", "a.bias" }, c:names())
      -- as checkpoints of the reference: weights in shards, with averages next to them
      copy("pytorch_model.bin.index.json", "model/pytorch_model.bin.index.json")
      for i = 1, 2 do
        local shard = ("pytorch_model-0000%d-of-00002.bin"):format(i)
        copy(shard, "model/" .. shard)
      end
      copy("module.pth", "ema.pt")
      local d <close> = ckpt.open(dir.path)
      assert.equal(6, #d:names())
      local averages <close> = ckpt.companion(d, "ema.pt")
      assert.same({ "a.weight", "a.bias" }, averages:names())
      assert.is_nil(ckpt.companion(d, "nothing.pt"))
    end)

    it("are refused when there are several candidates", function()
      copy("module_sd.bin", "one.bin")
      copy("module_sd.bin", "two.bin")
      local good, err = pcall(ckpt.open, dir.path)
      assert.is_false(good)
      assert.matches("no index file, and more than one file of weights", err.message)
    end)

    it("are refused with the names of the index and of the missing shard", function()
      copy("pytorch_model.bin.index.json", "pytorch_model.bin.index.json")
      copy("pytorch_model-00001-of-00002.bin", "pytorch_model-00001-of-00002.bin")
      local good, err = pcall(ckpt.open, dir.path)
      assert.is_false(good)
      assert.equal("MR_E_IO", err.code)
      assert.matches("pytorch_model.bin.index.json: cannot open "
        .. "pytorch_model%-00002%-of%-00002.bin, which it names\n.*cannot open: No such file",
        err.message)
    end)
  end)
end)
