--- Weights saved by torch are read as data; anything else in the file is refused.
-- Covers: core/ckpt/pickle.c core/ckpt/torch.c core/ckpt/zip.c
local ckpt = require "moonreel.ckpt"
local base = require "moonreel.core.base"
local process = require "moonreel.core.process"
local torch_file = require "spec.support.torch_file"

local zip, text, tuple, ints = torch_file.zip, torch_file.text, torch_file.tuple, torch_file.ints
local tensor, dict, pickle = torch_file.tensor, torch_file.dict, torch_file.pickle
local data0 = string.pack("<ffffff", 1, 2, 3, 4, 5, 6)
local good = dict(text "net", "ccollections\nOrderedDict\n)R(" .. text "w"
  .. tensor("FloatStorage", "0", 6, 2, ints(2, 2), ints(2, 1))
  .. text "h" .. tensor("HalfStorage", "1", 2, 0, ints(2), ints(1)) .. "u"
    .. "}(" .. text "_metadata" .. "}ub",
  text "step", "K\7", text "scalar", tensor("LongStorage", "2", 1, 0, ")", ")"),
    text "tied", tensor("FloatStorage", "0", 6, 0, ints(6), ints(1)))

describe("weights of torch", function()
  local path
  before_each(function()
    path = os.tmpname()
    os.remove(path)
    path = path .. ".pth"
  end)
  after_each(function() os.remove(path) end)

  local function write(value, extra, index)
    local entries = { index or { "archive/data.pkl", pickle(value) },
      { "archive/byteorder", "little" }, { "archive/data/0", data0 },
      { "archive/data/1", "\0\x3c\0\xc0" }, { "archive/data/2", string.pack("<i8", -7) } }
    for _, e in ipairs(extra or {}) do
      entries[#entries + 1] = e
    end
    zip(path, entries)
  end

  local function refused(pattern)
    local ok, err = pcall(ckpt.open, path)
    assert.is_false(ok)
    assert.matches(pattern, tostring(err))
    return err
  end

  it("are read by name, nested dictionaries joined by dots", function()
    write(good)
    local c <close> = ckpt.open(path)
    assert.same({ "net.w", "net.h", "scalar", "tied" }, c:names())
    assert.same({ 2, 2 }, c:info("net.w").shape)
    assert.same({ 3, 4, 5, 6 }, c["net.w"]:tensor():totable())
    assert.same({ 1, -2 }, c["net.h"]:tensor():totable())
    assert.equal(-7, c.scalar:tensor():item())
    assert.equal(3.5, c:stats("tied").mean)
    assert.is_nil(c.manifest)
  end)

  it("report why a tensor cannot be read, and return the others", function()
    write(dict(text "whole", tensor("FloatStorage", "0", 6, 0, ints(6), ints(1)),
      text "z", tensor("ComplexFloatStorage", "0", 3, 0, ints(3), ints(1))))
    local c <close> = ckpt.open(path)
    assert.same({ "whole" }, c:names())
    assert.same({ { name = "z", why = "its elements are complex64" } }, c:refused())
    assert.same({ 1, 2, 3, 4, 5, 6 }, c.whole:tensor():totable())
    for _, ask in ipairs { function() return c.z end, function() return c:stats("z") end,
        function() return c:read("z") end } do
      local ok, err = pcall(ask)
      assert.is_false(ok)
      assert.matches("tensor 'z' cannot be read: its elements are complex64", tostring(err))
    end
    assert.is_nil(c:info("y"))
    assert.is_false(pcall(function() return c.y end))
  end)

  it("are listed and verified from the command line", function()
    local function run(words)
      local command = process.program() .. " ckpt " .. words .. " 2>&1"
      local done = process.run({ "/bin/sh", "-c", command }, "")
      return done.output, done.exit
    end
    write(dict(text "whole", tensor("FloatStorage", "0", 6, 0, ints(6), ints(1)),
      text "z", tensor("ComplexFloatStorage", "0", 3, 0, ints(3), ints(1))))
    assert.matches("1 tensors, 24 B\nz cannot be read: its elements are complex64",
      (run("inspect " .. path)))
    assert.matches("tensor 'z' cannot be read", (run("inspect " .. path .. " z")))
    assert.matches("1 tensors, 24 B: all read, all CRCs match, 0 values not finite",
      (run("verify " .. path)))
    write(good, { { "archive/data/9", "abc", crc = 7 } })
    local said, exit = run("verify " .. path)
    assert.matches("entry 'archive/data/9' is damaged: its CRC is %x+, expected 00000007", said)
    assert.equal(8, exit)
  end)

  it("never look up or call a name outside the list", function()
    for _, code in ipairs { "cos\nsystem\n" .. tuple(text "touch /tmp/moonreel-pickled") .. "R",
        "c__builtin__\neval\n(" .. text "1" .. "tR",
      text "posix" .. text "system" .. "\x93)R", "ctorch._utils\n_rebuild_tensor\n)R" } do
      write(dict(text "x", code))
      refused "is not on the list of names that weights need; nothing was run"
    end
    assert.is_false(base.exists "/tmp/moonreel-pickled")
    -- building objects and instances
    for _, op in ipairs { "i", "o", "\x92", "P", "\x82" } do
      write(dict(text "x", op))
      refused "opcode 0x%x%x is not one that weights need"
    end
  end)

  it("refuse damaged files, each with its reason", function()
    write(good, { { "archive/data/9", "abc", method = 8 } })
    refused "compressed or encrypted"
    write(good, { { "archive/data/0", "abc" } })
    refused "occurs twice"
    write(good, nil, { "archive/data.pkl", pickle(good), crc = 5 })
    refused "data.pkl' is damaged: its CRC is %x+, expected 00000005"
    write(dict(text "x", tensor("FloatStorage", "0", 6, 4, ints(2, 2), ints(2, 1))))
    refused "'x' reaches past its storage"
    write(dict(text "x", tensor("FloatStorage", "7", 6, 0, ints(2), ints(1))))
    refused "storage '7' is not in the file"
    write(dict(text "x", tensor("FloatStorage", "0", 6, 0, ints(-2), ints(1))))
    refused "invalid arguments"
    write(dict(text "x", tensor("FloatStorage", "0", 6, 0, ints(0x7fffffff, 0x7fffffff, 0x7fffffff),
      ints(1, 1, 1))))
    refused "overflows"
    write(good, nil, { "archive/data.pkl", pickle(good):sub(1, 60) })
    refused "cut off"
    for _, code in ipairs { "h\9", "t", "u", "R", "Q", "s", "\x87", "a" } do
      write(code)
      refused "pickle: "
    end
    write "]"
    refused "no dictionary of tensors"
    zip(path, { { "archive/data/0", data0 } })
    refused "no data.pkl"
    base.replace_file(path, "\x80\2}q\0.")
    refused "that torch.save did not write"
  end)

  it("stop at limits of opcodes, stack, depth and index length, and at cycles",
    function()
    write(("N"):rep(100001))
    refused "stack deeper than 100000"
    write(("}0"):rep(2):gsub("0", "") .. ("]N" .. "a"):rep(1) .. ("Nq\0"):rep(1)
      .. ("(t"):rep(50000) .. ("\x85"):rep(900001))
    refused "more than 1000000 opcodes"
    write("}q\0(" .. text "x" .. "h\0u")
    refused "or cyclic"
    write((("}" .. text "x"):rep(80)) .. "}" .. ("s"):rep(80))
    refused "nested deeper than 64"
    write(good, nil, { "archive/data.pkl", (" "):rep((8 << 20) + 1) })
    refused "data.pkl has 8388609 bytes"
    write("}r\xff\xff\xff\x7f")
    refused "memo"
  end)
end)
