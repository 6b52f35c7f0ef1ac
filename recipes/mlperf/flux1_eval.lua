-- The validation loss that ends MLPerf's FLUX.1: of 29,696 pictures with captions, each at one of
-- eight times in turn; the mean over the times is to be 0.586 at most. `moonreel train
-- mlperf/flux1_eval --ckpt-path RUN --data-path NAME.mrx`. Ref: mlcommons/training 1c759d0,
-- text_to_image.
local times = {}
for i = 0, 7 do
  times[i + 1] = i / 8
end

return recipe.extend("./flux1") {
  job = "eval_loss", eval_timesteps = times, eval_in_turn = true,
  cached = false, epochs = 1, steps = recipe.remove,
}
