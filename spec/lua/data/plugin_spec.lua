--- The media plug-in is opened on first use from known folders; the program itself has no codec.
-- Covers: core/index/plugin.c
local base = require "moonreel.core.base"
local data = require "moonreel.data"

local function output(command)
  local pipe = io.popen(command .. " 2>&1")
  local text = pipe:read("a")
  pipe:close()
  return text
end

describe("the program", function()
  local program = output("readlink /proc/" .. base.pid() .. "/exe"):gsub("%s+$", "")

  it("links no FFmpeg library except libavutil", function()
    local linked = output("ldd " .. program)
    assert.matches("liblua5%.4", linked)
    for _, library in ipairs { "avcodec", "avformat", "swscale", "avfilter" } do
      assert.is_nil(linked:find("lib" .. library, 1, true))
    end
  end)

  it("opens the plug-in for the first clip", function()
    local code = [[local f = io.open("/proc/self/maps"):read("a"); local a = f:find("libavcodec", 1, true)
      pcall(require("moonreel.data").scan, "/nothing.mp4"); local b = io.open("/proc/self/maps"):read("a"):find("libavcodec", 1, true)
      print(a == nil, b ~= nil)]]
    assert.equal("true\ttrue\n", output(("%s -e '%s'"):format(program, code)))
  end)

  it("lists the folders in which it looked", function()
    local folder = os.tmpname()
    os.remove(folder)
    base.make_dir(folder)
    assert.equal("", output(("cp %s %s/moonreel"):format(program, folder)))
    local text = output(
      ("%s/moonreel -e 'require(\"moonreel.data\").scan(\"/nothing.mp4\")'"):format(folder))
    assert.matches("libmoonreel_media.so is not in " .. folder, text, 1, true)
    assert.matches("MOONREEL_PLUGINS=DIR", text, 1, true)
    local dir = program:match("^(.*)/")
    text = output(("MOONREEL_PLUGINS=%s %s/moonreel -e "
      .. "'require(\"moonreel.data\").scan(\"/nothing.mp4\")'"):format(dir, folder))
    assert.matches("/nothing.mp4: cannot open", text, 1, true)
    os.execute("rm -rf '" .. folder .. "'")
  end)

  it("does not look for the plug-in for a loader that decodes nothing", function()
    local folder = os.tmpname()
    os.remove(folder)
    base.make_dir(folder)
    data.png(folder .. "/1.png", ("x"):rep(3 * 32 * 32), { height = 32, width = 32 })
    base.replace_file(folder .. "/clips.csv", "path,text\n1.png,one\n")
    data.ingest(folder .. "/clips.csv", folder .. "/clips.mrx")
    assert.equal("", output(("cp %s %s/moonreel"):format(program, folder)))
    local code = [[local data = require "moonreel.data"
      local index <close> = data.open "%s/clips.mrx"
      local loader <close> = data.loader { index = index,
      bucket_config = { ["32px"] = { [1] = { 1.0, 1 } } }, epochs = 1, blind = %s,
      resolutions = { ["32px"] = { pixels = 1024, aspects = { { 1.0, 32, 32 } } } } }
      for batch in function() return loader:next() end do print("batch of " .. batch.n) end]]
    local function batches(blind)
      return output(("%s/moonreel -e '%s'"):format(folder, code:format(folder, blind)))
    end
    assert.matches("libmoonreel_media.so is not in ", batches(false), 1, true)
    assert.equal("batch of 1\n", batches(true))
    os.execute("rm -rf '" .. folder .. "'")
  end)
end)
