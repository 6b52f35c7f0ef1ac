--- A run writes checkpoints either from copies of its state while it trains on, or through one
-- small buffer while its steps wait.
-- Covers: lua/moonreel/trainer/writer.lua lua/moonreel/trainer/cadence.lua core/ckpt/window.c
local base = require "moonreel.core.base"
local cadence = require "moonreel.trainer.cadence"
local demo_data = dofile "spec/support/demo_data.lua"
local fails = dofile "spec/support/fails.lua"
local run = require "moonreel.run"
local settings = require "moonreel.settings"
local state = require "moonreel.trainer.state"
local team = require "moonreel.comm.team"
local writer = require "moonreel.trainer.writer"

local out = demo_data.scratch()
teardown(function()
  os.execute("rm -r '" .. out .. "'")
  demo_data.remove()
end)

local function train(name, ...)
  return demo_data.moonreel("train", "tiny/demo", "name=" .. name, "outputs=" .. out,
    "dataset.data_path=" .. demo_data.path(), "steps=4", "ckpt_every=2", "ckpt_minutes=0",
    "threads=1", "num_workers=1", "warmup_steps=2", "dtype=bf16", "model.depth=1",
    "model.hidden_size=32", "model.num_heads=2", "text_encoder.width=32",
    "model.caption_channels=32", 'bucket_config={["32px"]={[1]={1.0,4}}}', ...)
end

local function shards(name, step)
  local list, dir = {}, require("moonreel.ckpt").dir(demo_data.run_dir(out, name), step)
  for _, file in ipairs(base.list_dir(dir)) do
    list[file] = file:find "%.safetensors$" and base.read_file(dir .. "/" .. file) or nil
  end
  return list
end

local function saves(name)
  local list = {}
  for entry in run.entries(demo_data.run_dir(out, name)) do
    list[#list + 1] = entry.kind == "save" and entry or nil
  end
  return list
end

describe("a run that writes checkpoints", function()
  it("writes the same state in parallel with its steps and while they wait", function()
    for _, ranks in ipairs { {}, { "-n", "2" } } do
      local suffix = #ranks > 0 and "_2" or ""
      local behind = train("behind" .. suffix, table.unpack(ranks))
      local wait = train("wait" .. suffix, "async_io=false", table.unpack(ranks))
      assert.matches("checkpoints: every 2 steps %(ckpt_every%), at the end; 2 of [%d.]+ %a+ in "
        .. "host memory", behind)
      assert.matches("at the end; steps wait for a save, which goes through [%d.]+ %a+", wait)
      for _, step in ipairs { 2, 4 } do
        local want, got = shards("behind" .. suffix, step), shards("wait" .. suffix, step)
        assert.is_true(next(want) ~= nil)
        for file, bytes in pairs(want) do
          assert.is_true(bytes == got[file], file .. " of step " .. step)
        end
      end
      local report = saves("wait" .. suffix)
      assert.equal(2, #report)
      for _, one in ipairs(report) do
        assert.equal("commit", one.event)
        assert.is_true(one.copy_s > 0 and one.write_s == 0)
      end
      assert.is_true(saves("behind" .. suffix)[1].write_s > 0)
    end
  end)

  it("needs host memory for copies, or for one buffer", function()
    local function bytes(...)
      return cadence.buffer_bytes(settings.bake("tiny/demo", { ... }), 1e9)
    end
    assert.equal(2e9, bytes "ckpt_every=2")
    assert.equal(1e9, bytes "ckpt_minutes=10")
    -- no step follows the only save of this run
    assert.equal(64 << 20, bytes "ckpt_minutes=0")
    assert.equal(64 << 20, bytes("ckpt_every=2", "async_io=false"))
    assert.equal(1000, cadence.buffer_bytes(settings.bake("tiny/demo",
      { "async_io=false" }), 1000))
  end)

  it("is refused before its first step when the host's memory cannot hold the copies", function()
    local saved_bytes, free_bytes = state.saved_bytes, base.free_bytes
    finally(function() state.saved_bytes, base.free_bytes = saved_bytes, free_bytes end)
    state.saved_bytes = function() return 1 << 50 end
    base.free_bytes = function() return 1 << 60 end
    local r = { settings = settings.bake("tiny/demo", { "ckpt_every=2" }),
      team = team.new(), dir = run.create(out, "refused"), notes = {}, pipe = {},
      keep = function(_, kept) return kept end }
    r.lock = run.lock(r.dir)
    fails("MR_E_MEMORY", "async_io = true: 2 checkpoints in host memory, from which they are "
      .. "written while training continues, take 2048.0 TiB of %S+; [%d.]+ %a+ are free\n  try: "
      .. "async_io=false, and steps wait while a checkpoint goes through 64.0 MiB", writer.open, r)
    r.saver:close()
    r.lock:close()
  end)
end)
