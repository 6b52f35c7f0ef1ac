--- A part in place of the text encoder: its sizes are those of the released one.
local given = require "moonreel.plan.given"

describe("a part that is given", function()
  it("has the width and the tokens of the text encoder", function()
    local t5 = given.part({ type = "t5", model_max_length = 300 }, "bf16")
    assert.same({ 4096, 300 }, { t5.width, t5.max_length })
  end)

  it("is not there for what nobody knows", function()
    assert.is_nil(given.part({ type = "text_embedder" }, "bf16"))
    assert.is_nil(given.part({}, "bf16"))
  end)
end)
