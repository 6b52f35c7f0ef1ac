local hint = require "moonreel.text.hint"

-- the error of a function that raises one with a hint around it
local function said(code, message)
  local ok, problem = pcall(hint, "copy it again", error, { code = code, message = message })
  assert.is_false(ok)
  assert.equal(code, problem.code)
  return problem.message
end

describe("text.hint", function()
  it("ends an error about the contents of a file, once", function()
    assert.equal("a.bin: cut off; try: copy it again", said("MR_E_FORMAT", "a.bin: cut off"))
    assert.equal("a.bin:\n  two lines\n  try: copy it again",
      said("MR_E_CKPT", "a.bin:\n  two lines"))
    assert.equal("a.bin: cut off; try: b.bin", said("MR_E_DATA", "a.bin: cut off; try: b.bin"))
  end)

  it("leaves other errors and results as they are", function()
    assert.equal("the disk is full", said("MR_E_IO", "the disk is full"))
    local ok, problem = pcall(hint, "copy it again", error, "a text", 0)
    assert.same({ false, "a text" }, { ok, problem })
    assert.same({ 1, nil, 3, n = 3 }, table.pack(hint("copy it again", function(...)
      return ...
    end, 1, nil, 3)))
  end)
end)
