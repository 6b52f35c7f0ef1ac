--- Lengths that the timestep transform of Open-Sora 1.2 cannot train.
local lengths = require "moonreel.diffusion.lengths"
local rflow = require "moonreel.diffusion.rflow"

describe("diffusion.lengths", function()
  it("lists those whose ratio is 0, and no others", function()
    local given = { compat = "opensora-1.2", use_timestep_transform = true }
    for frames = 1, 40 do
      local ratio = rflow.ratio_of({ compat = given.compat, scheduler = { transform_scale = 1,
        use_timestep_transform = true } }, "fp32", { frames = frames, latent_frames = frames,
        height = 64, width = 96 })
      assert.equal(ratio == 0, lengths.lost(given, frames) ~= nil, frames)
    end
    assert.matches('compat = "opensora%-1%.2" with scheduler%.use_timestep_transform counts 16 '
      .. "frames as 0 latent frames, .* expected 1 frame, or at least 17; try: ",
      lengths.lost(given, 16))
  end)

  it("is empty without compat, without the transform, and with a fixed shift", function()
    for _, given in ipairs { { use_timestep_transform = true }, { compat = "opensora-1.2" },
        { compat = "opensora-1.2", use_timestep_transform = true, shift = 2 } } do
      assert.is_nil(lengths.lost(given, 5))
    end
  end)
end)
