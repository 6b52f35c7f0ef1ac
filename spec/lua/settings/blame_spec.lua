local blame = require "moonreel.settings.blame"
local settings = require "moonreel.settings"

describe("settings.blame", function()
  it("names the line that gave a file, and what to try where the file does not fit", function()
    local s = settings.bake("tiny/demo", { "ckpt_path=a.bin" })
    local function said(code, message)
      local ok, problem = pcall(blame.field, s, "ckpt_path", error,
        { code = code, message = message }, 0)
      assert.is_false(ok)
      return problem.message
    end
    assert.equal("ckpt_path=a.bin: 3 tensors are missing; try: files of one release that fit the "
      .. "recipe, or another ckpt_path", said("MR_E_CKPT", "a.bin: 3 tensors are missing"))
    assert.equal("ckpt_path=a.bin: cannot open", said("MR_E_IO", "a.bin: cannot open"))
    assert.equal("stopped", said("MR_E_STOPPED", "stopped"))
  end)
end)
