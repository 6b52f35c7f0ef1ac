--- cuda/bench/bounds.lua: the bound of a loop, counted from machine code made here.
-- Covers: cuda/bench/bounds.lua cuda/bench/sass.lua
local folder = require "spec.support.folder"

-- A kernel as cuobjdump writes it: lines of code; "name:" in front of a line that others jump to by
-- `name`; "n * code" for n copies of a line.
local function dump(name, lines)
  local code, at = {}, {}
  for _, line in ipairs(lines) do
    local label = line:match("^(%a+):$")
    local times, repeated = line:match("^(%d+) %* (.*)$")
    if label then
      at[label] = ("0x%x"):format(#code * 16)
    end
    for _ = 1, label and 0 or times and tonumber(times) or 1 do
      code[#code + 1] = repeated or line
    end
  end
  local list = { "\t\tFunction : " .. name }
  for i, line in ipairs(code) do
    list[#list + 1] = ("        /*%04x*/                   %s ;  /* 0x0000000000000000 */"):format(
      (i - 1) * 16, (line:gsub("`(%a+)`", at)))
  end
  return table.concat(list, "\n") .. "\n"
end

-- run it on a kernel: output, errors, exit code
local function bounds(name, lines, words)
  local at <close> = folder.new()
  return folder.moonreel(("cuda/bench/bounds.lua %s %s"):format(
    at:write("kernel.sass", dump(name, lines)), words or ""))
end

-- a forward loop of 64 columns with extra lines between its products; failed waits are retried
-- after the end, as ptxas writes them
local function forward(...)
  local lines = {
    "S2R R0, SR_TID.X", "IMAD.SHL.U32 R2, R0, 0x4, RZ", "IMAD.SHL.U32 R3, R0, 0x80, RZ",
    "again:",
    "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4+0x14000], R6",
    "@!P0 BRA `late`",
    "there:",
    "4 * HGMMA.64x128x16.F32.BF16 R24, gdesc[UR16], R24",
  }
  table.move({ ... }, 1, select("#", ...), #lines + 1, lines)
  table.move({
    "64 * MUFU.EX2 R40, R40",
    "8 * HGMMA.64x64x16.F32.BF16 R88, R148, gdesc[UR16].tnspB, R88",
    "@P1 BRA `again`",
    "EXIT",
    "late:",
    "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4+0x14000], R6",
    "@!P0 BRA `late`",
    "BRA `there`",
  }, 1, 8, #lines + 1, lines)
  return lines
end

-- a backward loop of 128 columns: steps of 32 queries, then dq for 64 columns at a time
local function backward(products)
  return {
    "tile:",
    "VIADD R5, R5, 0x1",
    "step:",
    products .. " * HGMMA.64x32x16.F32.BF16 R168, gdesc[UR40], R168",
    "16 * MUFU.EX2 R40, R40",
    "4 * HGMMA.64x128x16.F32.BF16 R24, R196, gdesc[UR8].tnspB, R24",
    "@P0 BRA `step`",
    "BAR.SYNC.DEFER_BLOCKING 0x1, 0x100",
    "columns:",
    "8 * HGMMA.64x64x16.F32.BF16 R152, gdesc[UR40].tnspA.tnspB, R152",
    "@P2 BRA `last`",
    "8 * REDG.E.ADD.F32x4.FTZ.RN.STRONG.GPU desc[UR54][R8.64], R152",
    "BRA `on`",
    "last:",
    "100 * STG.E desc[UR54][R8.64], R152",
    "on:",
    "@P3 BRA `columns`",
    "@P4 BRA `tile`",
    "EXIT",
  }
end

local FORWARD, BACKWARD = "_Z24attention_forward_groupsILi64EEv8HeadMaps",
  "_Z22attention_turns_groupsILi128EEv8HeadMaps"

-- cycles of tensor cores, special units, issue slots, shared memory, L2; share and bound
local function row(out, title, width)
  local text = assert(out:match("\n" .. title .. " +" .. width .. "( +[^\n]+)"), out)
  local numbers = {}
  for number in text:gmatch("[%d.]+") do
    numbers[#numbers + 1] = tonumber(number)
  end
  numbers[7] = text:match("(%a%w*)$")
  return numbers
end

describe("bounds of loops", function()
  it("count every instruction of an iteration by its unit", function()
    local out, err, code = bounds(FORWARD, forward())
    assert.equal(0, code, err)
    -- 2 x 128 x 128 x 64 multiply-adds at 2048 a cycle; 8 warps of 64 exponentials at 16 a cycle;
    -- 79 instructions of two warps; operands of products and copied tiles at 128 bytes a cycle;
    -- these tiles at 25 bytes a cycle
    assert.same({ 1024, 1024, 158, 384 + 256 + 256, 1311, 0.78, "L2" },
      row(out, "attention forward", 64))
    assert.matches("attention forward 72: not in these files", out, 1, true)
  end)

  it("count inner loops as often as they run, on the path of most tiles", function()
    local out, err, code = bounds(BACKWARD, backward(16))
    assert.equal(0, code, err)
    local steps, columns = 4 * (16 + 16 + 4 + 1), 2 * (8 + 1 + 8 + 1 + 1)
    assert.same({ 5120, 1024, 2 * (1 + steps + 1 + columns + 1), 4096 + 1024 + 512, 5243, 0.91,
      "shared" }, row(out, "attention backward, turns", 128))
  end)

  it("count all iterations for the keys of a tile, and useless products as no share", function()
    local out, err, code = bounds("_Z22attention_forward_wide8HeadMaps", {
      "again:",
      "32 * HGMMA.64x32x16.F32.BF16 R168, gdesc[UR40], R168",
      "18 * MUFU.EX2 R40, R40",
      "4 * HGMMA.64x128x16.F32.BF16 R24, R148, gdesc[UR8].tnspB, R24",
      "@P0 BRA `again`",
      "EXIT",
    })
    assert.equal(0, code, err)
    -- 4 iterations of 32 keys; 3 x 128 x 128 x 256 multiply-adds, two thirds of them useful
    assert.same({ 6144, 1152, 4 * 55 * 2, 8 * (32 * 24 + 4 * 32) + 1536, 7864, 0.47, "shared" },
      row(out, "attention forward, wide", 512))
  end)

  it("refuse a loop whose products are not those of a tile", function()
    local _, err, code = bounds(BACKWARD, backward(15))
    assert.equal(1, code)
    assert.matches("attention_turns_groupsILi128E: the loop multiplies 10223616 times, expected "
      .. "10485760", err, 1, true)
  end)

  it("leave out skipped code, and count predicated code only as issue slots", function()
    local out = bounds(FORWARD, forward("@P3 BRA `over`", "200 * FSEL R24, R24, R25, P4", "over:",
      "@P5 STS [R3], R24"))
    assert.same({ 1024, 1024, 162, 896, 1311, 0.78, "L2" }, row(out, "attention forward", 64))
  end)

  it("are lowered by bank conflicts, which follow from the addresses of lanes", function()
    local out = bounds(FORWARD, forward("4 * STS [R2+UR5+0x400], R24"))
    assert.same({ 1024, 1024, 166, 896 + 32, 1311, 0.78, "L2" }, row(out, "attention forward", 64))
    -- rows of 128 bytes: all lanes in one bank
    out = bounds(FORWARD, forward("4 * STS [R3+UR5+0x400], R24"))
    assert.same({ 1024, 1024, 166, 896 + 32 * 32, 1311, 0.53, "shared" },
      row(out, "attention forward", 64))
    -- the same, swizzled
    out = bounds(FORWARD, forward("LOP3.LUT R4, R0, 0x1f, RZ, 0xc0, !PT", "LEA R4, R4, R3, 0x2",
      "4 * STS [R4], R24"))
    assert.equal(896 + 32, row(out, "attention forward", 64)[4])
  end)

  it("know that lanes share a word, and that wide ones take several passes", function()
    local out = bounds(FORWARD, forward("LOP3.LUT R4, R0, 0x3, RZ, 0xc0, !PT",
      "IMAD.SHL.U32 R4, R4, 0x8, RZ", "4 * LDS.64 R8, [R4]"))
    assert.equal(896 + 32, row(out, "attention forward", 64)[4])
    out = bounds(FORWARD, forward("IMAD.SHL.U32 R4, R0, 0x10, RZ", "4 * LDS.128 R8, [R4]"))
    assert.equal(896 + 4 * 32, row(out, "attention forward", 64)[4])
  end)

  it("are lowered by registers that are spilled", function()
    local out = bounds(FORWARD, forward("5 * STL [R1+0x4], R24", "5 * LDL R24, [R1+0x4]"))
    assert.same({ 1024, 1024, 178, 896 + 80, 1720, 0.60, "L2" }, row(out, "attention forward", 64))
  end)

  it("name unknown instructions and addresses", function()
    local out, err, code = bounds(FORWARD, forward("3 * FROB R1, R2", "LDS R5, [R7]"))
    assert.equal(0, code, err)
    assert.same({ 1024, 1024, 166, 896 + 8, 1311, 0.78, "L2" }, row(out, "attention forward", 64))
    assert.matches("attention forward 64: FROB is not known, counted as an issue slot: 3 times",
      out, 1, true)
    assert.matches("64: LDS at addresses that are not known, counted without conflicts: 1 times",
      out, 1, true)
  end)

  it("use the measured rate of narrow products", function()
    local at <close> = folder.new()
    local base = require "moonreel.core.base"
    local text = base.read_file "machines/h100.lua"
    local mine = at:write("mine.lua", (text:gsub("product = 2048,", "%0 product64 = 1024,")))
    local out = bounds(FORWARD, forward(), "machine=" .. mine)
    -- half of the work is in products of 128 columns
    assert.same({ 512 + 1024, 1024, 158, 896, 1311, 0.67, "tensor" },
      row(out, "attention forward", 64))
  end)

  it("say what is missing", function()
    local _, err, code = folder.moonreel("cuda/bench/bounds.lua")
    assert.equal(1, code)
    assert.matches("expected files that cuobjdump --dump-sass wrote", err, 1, true)
    _, err, code = bounds("other", { "EXIT" })
    assert.equal(1, code)
    assert.matches("no kernel of the list is in ", err, 1, true)
    _, err, code = bounds(FORWARD, forward(), "machine=A100")
    assert.equal(1, code)
    assert.matches("A100: the machine file says nothing of a cycle", err, 1, true)
    _, err, code = bounds(FORWARD, { "EXIT" })
    assert.equal(1, code)
    assert.matches("attention_forward_groupsILi64E: no loop holds HGMMA and MUFU.EX2", err, 1, true)
  end)
end)
