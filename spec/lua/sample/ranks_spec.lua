--- Ranks that render together produce the frames of one rank in one file: `256px_tp` of Open-Sora
-- 2.0 at a small size with its own plugin settings, by 4 ranks and by 8, which share the channels
-- of its autoencoder or the rows. MOONREEL_EVERY also shares tokens.
-- Covers: lua/moonreel/sample/ranks.lua lua/moonreel/sample/init.lua lua/moonreel/cli/sample.lua
local base = require "moonreel.core.base"
local fails = dofile "spec/support/fails.lua"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"
local ranks = require "moonreel.sample.ranks"
local settings = require "moonreel.settings"
local tiny20 = require "spec.support.tiny20"

local RECIPE <const> = "opensora-2.0/inference/256px_tp"

describe("ranks that render together", function()
  local dir, words
  setup(function()
    dir = folder.new()
    words = select(2, tiny20.make(RECIPE, dir.path, { "model.num_heads=8", "model.hidden_size=64",
      "model.axes_dim={2,2,4}" }))
  end)
  teardown(function() dir:remove() end)

  -- renders with n ranks; returns the bytes of the frames
  local function render(n, ...)
    local out = ("%s/by%d"):format(dir.path, n)
    local list = { "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', process.program() }
    local function add(more) table.move(more, 1, #more, #list + 1, list) end
    add(n > 1 and { "-n", tostring(n) } or {})
    add { "sample", RECIPE, "--prompt", "a red ball", "--size", "32x32", "--frames", "5", "--steps",
      "2", "--threads", "1", "--overwrite", "--verbose", "0", "--out", out }
    add(words)
    add { ... }
    local done = process.run(list, "", { deadline_s = 300 })
    assert.equal(0, done.exit, done.output)
    local files = {}
    for path in done.output:gmatch "([^\n]+%.mp4)" do
      files[#files + 1] = path
    end
    assert.equal(1, #files, done.output)
    return base.read_file(files[1])
  end

  it("write the file of one rank", function()
    local want = render(1)
    -- frames are whole numbers of 0 to 255, which another order of sums does not change here
    for _, row in ipairs { { 4 }, { 8, "plugin_config_ae.tp_size=2" },
        { 4, "plugin_config_ae.tp_size=1", "plugin_config_ae.sp_size=4" } } do
      assert.is_true(want == render(table.unpack(row)), table.concat(row, " "))
    end
    if os.getenv "MOONREEL_EVERY" then
      assert.is_true(want == render(4, "plugin_config.tp_size=2", "plugin_config.sp_size=2"))
    end
  end)

  it("are divided into groups that share clips, or refused", function()
    local function share(n, ...)
      local world = { size = n, rank = 0, world = { split = function() return nil end } }
      ranks.clips(settings.bake(RECIPE, { ... }), world, { apart = true })
    end
    fails("MR_E_RECIPE", "plugin_config_ae%.tp_size = 1: ranks cannot share the channels of this "
      .. "autoencoder", share, 2)
    fails("MR_E_USAGE", "8 ranks cannot be divided into groups of 3 that share their clips; try: "
      .. "plugin_config_ae%.tp_size = 2 or 4", share, 8, "plugin_config_ae.tp_size=3")
  end)

  it("number as many as the recipe says or fewer; more are refused", function()
    local function sizes(n, ...) return { ranks.sizes(settings.bake(RECIPE, { ... }), n) } end
    assert.same({ 8, 1 }, sizes(8))
    assert.same({ 4, 1 }, sizes(4))
    assert.same({ 1, 1 }, sizes(1))
    assert.same({ 2, 2 }, sizes(4, "plugin_config.tp_size=2", "plugin_config.sp_size=4"))
    fails("MR_E_USAGE", "sample: there are 16 ranks; plugin_config.tp_size = 8 ranks share layers "
      .. "and plugin_config.sp_size = 1 share tokens; expected 8 x 1 ranks; try: moonreel %-n 8 "
      .. "sample, or plugin_config.tp_size=16 plugin_config.sp_size=1", sizes, 16)
  end)
end)
