--- moonreel.core.base: what is read whole is a regular file.
local base = require "moonreel.core.base"

describe("base.read_file", function()
  it("refuses pipes, devices and folders at once instead of waiting", function()
    local path = os.tmpname()
    os.remove(path)
    assert(os.execute("mkfifo " .. path))
    for _, name in ipairs { path, "/dev/zero", "/tmp" } do
      local ok, err = pcall(base.read_file, name)
      assert.is_false(ok)
      assert.matches("is no regular file", tostring(err))
    end
    os.remove(path)
  end)
end)
