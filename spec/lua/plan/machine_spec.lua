--- Machine files: plain numbers, checked field by field.
local folder = require "spec.support.folder"
local machine = require "moonreel.plan.machine"

local LEAST = [[return { name = "X", source = "me", memory_bytes = 1e9,
  peak = { bf16 = 989, f32 = 1, memory = 5 }, node = { gpus = 8, link = 1, link_step_s = 1 },
  network = { cards = 8, card = 1, step_s = 1 }, host = { pcie = 1 }%s }]]

describe("a machine", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  local function open(extra, text)
    return machine.open(dir:write("m.lua", text or LEAST:format(extra or "")))
  end
  local function refused(want, extra, text)
    local ok, problem = pcall(open, extra, text)
    assert.is_false(ok)
    assert.is_truthy(tostring(problem):find(want, 1, true), tostring(problem))
  end

  it("of ours is complete: it has its peaks and no unknown field", function()
    assert.same({ "A100", "B200", "H100", "H200" }, machine.names())
    for _, name in ipairs(machine.names()) do
      local m = machine.open(name)
      assert.equal(name, m.name)
      assert.is_true(m.rate.product < m.peak.bf16 and m.rate.product > m.peak.bf16 / 3, name)
    end
    assert.equal(0, #machine.open("h100").assumed)
  end)

  it("without rates uses shares of its peak, and reports which", function()
    local m = open()
    assert.is_true(math.abs(m.rate.product - 600) < 1e-9)
    assert.is_true(math.abs(m.rate.convolution - 250) < 1e-9)
    assert.equal(0.8, m.rate.stream)
    local fields = {}
    for i, row in ipairs(m.assumed) do
      fields[i] = row.field
    end
    assert.same({ "reserve_bytes", "rate.product", "rate.attention", "attention.length",
      "attention.head", "attention.backward", "launch_s", "rate.convolution", "rate.text",
      "rate.stream", "host.disk", "host.store", "restart_s", "decode_rate",
      "encode_rate", "communication_share", "mtbf_gpu_hours" }, fields)
    assert.same({ field = "rate.product", value = m.rate.product, of = "peak.bf16" }, m.assumed[2])
  end)

  it("with a wrong field is refused with the field", function()
    refused("no field 'peak.bf61' in a machine, did you mean 'peak.bf16'?", ", peak = { bf61 = 1 }")
    refused("origin: there is no field 'peek' in a machine", ", origin = { peek = 'assumed' }")
    refused("origin['peak']: expected a text that begins with one of measured, data sheet, "
      .. "published, assumed, got 'guess'", ", origin = { peak = 'guess' }")
    refused("no field 'prise' in a machine", ", prise = 2")
    refused("mtbf_gpu_hours: expected more than 0, got 0", ", mtbf_gpu_hours = 0")
    refused("mtbf_gpu_hours: expected more than 0, got", ", mtbf_gpu_hours = 0 / 0")
    refused("rate.product: expected a number, got string", ", rate = { product = 'fast' }")
    refused("memory_bytes: expected a number, got nothing (memory of one GPU)", nil,
      "return { name = 'X', source = 'me' }")
    refused("expected a table of numbers, got nil", nil, "")
    refused("m.lua:1: attempt to call a nil value (global 'print')", nil, "print(1)")
    refused("m.lua:1:", nil, "return {")
    refused("peak: expected a table, got number", ", peak = 3")
    refused("node.gpus: expected a whole number, got 2.5",
      ", node = { gpus = 2.5, link = 1, link_step_s = 1 }")
    refused("no field 'host.host' in a machine", ", host = { host = {} }")
  end)

  it("that would run or grow without an end is stopped", function()
    refused("m.lua:1: more than", nil, "while true do end")
    refused("m.lua:1: ", nil, "local t = ('x'):rep(1e9) return t")
    refused("no field 'peak.peak' in a machine", nil, "local t = {} t.peak = t return t")
  end)

  it("with a single processor needs no links, and none is assumed", function()
    local text = [[return { name = "mine", source = "me", memory_bytes = 1e9,
      cpu = { isa = "avx2", threads = 2, bf16 = false }, peak = { bf16 = 1, f32 = 1, memory = 1 },
      rate = { product = 1, attention = 1, convolution = 1, text = 1, stream = 1, step_s = 1e-6 },
      ops = { ["add f32"] = { %s } }, decode_rate = 1 }]]
    local m = open(nil, text:format("{ 1, 2, 3 }"))
    -- a rate of files that are written
    assert.same({ 1, "encode_rate", false }, { #m.assumed, m.assumed[1].field, m.cpu.bf16 })
    assert.is_nil(m.node)
    for _, point in ipairs { "{ 1, 2 }", "{ 1, 2, 0 }", "{ 1, -2, 3 }", "{ 1, 2, 'x' }", "7" } do
      refused("ops['add f32'][1]: expected {operations, bytes, seconds}; try: moonreel bench "
        .. "--save NAME", nil, text:format(point))
    end
    refused("cpu.bf16: expected a boolean, got number", nil, text:gsub("false", "1"):format(""))
    assert.is_false(pcall(require("moonreel.plan.mesh").parse, "2", dir.path .. "/m.lua"))
  end)

  it("that is unknown is answered with the nearest name and the known ones", function()
    local ok, problem = pcall(machine.open, "H10")
    assert.is_false(ok)
    assert.is_truthy(tostring(problem):find("there is no machine 'H10', did you mean 'H100'?; "
      .. "expected one of A100, B200, H100, H200", 1, true), tostring(problem))
    assert.is_false(pcall(machine.open, dir.path .. "/none.lua"))
  end)
end)
