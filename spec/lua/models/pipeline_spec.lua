--- The parts of a run by the types that recipes name.
local pipeline = require "moonreel.models.pipeline"

describe("a pipeline", function()
  local function parts(vae, text_encoder)
    return pipeline.new({ vae = { type = vae },
      text_encoder = { type = text_encoder, width = 32, rows = 64, max_length = 24, ngrams = 2,
      num_heads = 2 }, model = { depth = 1, hidden_size = 32, num_heads = 2 } }, "f32")
  end

  it("finds its parts by the types that their fields declare", function()
    assert.equal(24, parts("dct", "bytes").autoencoder.channels)
  end)

  it("says which types are built where one has fields alone", function()
    for _, case in ipairs { { "hunyuan_vae", "bytes",
        "vae.type is 'hunyuan_vae', built so far: dct$" },
      { "dct", "t5", "text_encoder.type is 't5', built so far: bytes$" } } do
      local ok, problem = pcall(parts, case[1], case[2])
      assert.is_false(ok)
      assert.equal("MR_E_RECIPE", problem.code)
      assert.matches(case[3], tostring(problem))
    end
  end)
end)
