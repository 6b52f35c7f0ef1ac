--- Fields of the Open-Sora 1.2 video autoencoder. Its record is vae, or model while it is trained.
-- Ref: opensora-1.2.md 5.
local kl = require "moonreel.models.autoencoder_2d.kl"
local temporal = require "moonreel.models.opensora_vae.temporal"

-- a field of a half's sizes by its name in config.json
local function half(name, defaults, help)
  local keys = {}
  for field in pairs(defaults) do
    keys[field] = "as in config.json next to released weights"
  end
  return { name, { map = "free", keys = keys }, none = true, reader = "model", resume = "refuse",
    help = help .. "; none: those of config.json next to the weights, else the released ones" }
end

return {
  record = { "vae", "model" },
  types = { OpenSoraVAE_V1_2 = {
    help = "2-D autoencoder of images, then a temporal one; 4 channels, 8 x 8 x 4" } },
  fields = {
    { "micro_frame_size", "integer", none = true, default = 17, min = 1,
      reader = "model", resume = "refuse", help = "frames per piece of time" },
    { "micro_batch_size", "integer", default = 4, min = 1, reader = "model", affects = "speed",
      help = "frames that the 2-D part processes at a time" },
    half("vae_2d", kl.defaults, "sizes of the 2-D part"),
    half("vae_temporal", temporal.defaults, "sizes of the temporal part"),
    { "trains", "text", none = true, choices = { "pictures", "frames" },
      reader = "model", resume = "refuse",
      help = "under model: the half that is trained; first pictures, then frames; none: pictures" },
  },
}
