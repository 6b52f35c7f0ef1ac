--- Each flag of the two reference training documents is accepted and sets its field. Flags that
-- nothing reads yet are refused by name.
-- Covers: lua/moonreel/cli/sample.lua
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local unread = require "spec.support.unread"
local words_of = require "moonreel.settings.words"

describe("flags of the references' training documents", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  -- words as typed -> path and value
  local flags = {
    { "--load outputs/008/epoch4-global_step2210", "load", "outputs/008/epoch4-global_step2210" },
    { "--ckpt-path pretrained_models/PixArt-Sigma-XL-2-2K-MS.pth", "ckpt_path",
      "pretrained_models/PixArt-Sigma-XL-2-2K-MS.pth" },
    { "--start-from-scratch", "start_from_scratch", true },
    { "--start-step 0", "start_step", 0 },
    { "--start-epoch 0", "start_epoch", 0 },
    { "--data-path OpenVid1M.csv", "dataset.data_path", "OpenVid1M.csv" },
    { "--dataset.data-path datasets/x.csv", "dataset.data_path", "datasets/x.csv" },
    { "--model.from_pretrained ckpts/*.safetensors", "ckpt_path", "ckpts/*.safetensors" },
    { "--lr 1e-5", "optim.lr", 1e-5 },
    { "--outputs out", "outputs", "out" },
    { "--save-dir samples", "sampling.save_dir", "samples" },
    { "--wandb True", "wandb", true },
    { "--async-io True", "async_io", true },
    { "--record-time True", "record_time", true },
    { "--dataset.memory_efficient True", "dataset.memory_efficient", true },
    { "--num_workers 12", "num_workers", 12 },
    { "--batch-size 2", "batch_size", 2 },
    { "--dtype fp32", "dtype", "fp32" },
    { "--seed 7", "seed", 7 },
    { "--warmup-steps 10", "warmup_steps", 10 },
    { "--num-frames 51", "sampling.frames", 51 },
    { "--resolution 240p", "sampling.resolution", "240p" },
    { "--aspect-ratio 9:16", "sampling.aspect_ratio", "9:16" },
    { "--num-sampling-steps 30", "scheduler.num_sampling_steps", 30 },
    { "--cfg-scale 7.0", "scheduler.cfg_scale", 7.0 },
    { "--aes 6.5", "sampling.aes", 6.5 },
    { "--flow 10", "sampling.flow", 10.0 },
    { "--frame-interval 1", "sampling.frame_interval", 1 },
    { "--save-fps 24", "sampling.save_fps", 24.0 },
    { "--loop 4", "sampling.loop", 4 },
    { "--condition-frame-length 5", "sampling.condition_frame_length", 5 },
    { "--camera-motion zoom_in", "sampling.camera_motion", "zoom_in" },
    { "--prompt-path prompts.txt", "sampling.prompt_path", "prompts.txt" },
    { "--sampling_option.num_frames 97", "sampling.frames", 97 },
    { "--sampling_option.guidance 7.5", "sampling.guidance", 7.5 },
    { "--ae.from_pretrained a.safetensors", "vae.from_pretrained", "a.safetensors" },
    { "--grad_ckpt_settings (8,100)", "grad_ckpt_settings", { 8, 100 } },
    { "--plugin_config.sp_size 4", "plugin_config.sp_size", 4 },
    { "--sp-size 2", "plugin_config.sp_size", 2 },
    { "--hostfile nodes.txt", "hostfile", "nodes.txt" },
    { "--nproc_per_node 8", "nproc_per_node", 8 },
    { "-n 8", "nproc_per_node", 8 },
    { "--standalone", "standalone", true },
    { "--env.NCCL_IB_HCA==mlx5_1", "env.NCCL_IB_HCA", "=mlx5_1" },
    { "--mask_ratios.random 0.1", "mask_ratios.random", 0.1 },
  }

  for _, flag in ipairs(flags) do
    it(flag[1], function()
      local words = {}
      for word in flag[1]:gmatch("%S+") do
        words[#words + 1] = word
      end
      local parsed = words_of.parse(words, require "moonreel.cli.train")
      local recipe = flag[1]:find("memory_efficient", 1, true) and 'return recipe { dataset = { '
        .. 'type = "video_text" } }' or "return recipe {}"
      assert.same(flag[3], dir:bake(recipe, parsed.overrides):get(flag[2]))
    end)
  end

  it("can be combined in one command line, as a shell passes them", function()
    local recipe = dir:write("all.lua", 'return recipe { dataset = { type = "video_text" } }')
    local out, err, code = folder.moonreel("show --json " .. recipe
      .. [[ --load outputs/008 --ckpt-path a.pth --start-from-scratch --start-step 0 ]]
      .. [[--start-epoch 0 --data-path X.csv --lr 1e-5 --outputs out --save-dir s --prompt "raining, sea" --wandb True --async-io True ]]
      .. [[--record-time True --dataset.memory_efficient True --hostfile nodes.txt --nproc_per_node 8 --standalone --num_workers 3]])
    assert.equal(0, code, err)
    local s = json.decode(out).settings
    assert.same({ "outputs/008", "a.pth", true, 0, 0, "X.csv", 1e-5, "out",
      "s", { "raining, sea" }, true, true, true, true, "nodes.txt", 8, true, 3 },
      { s.load, s.ckpt_path, s.start_from_scratch, s.start_step, s.start_epoch,
        s.dataset.data_path, s.optim.lr, s.outputs, s.sampling.save_dir,
        s.sampling.prompts, s.wandb, s.async_io, s.record_time, s.dataset.memory_efficient,
          s.hostfile, s.nproc_per_node, s.standalone, s.num_workers })
  end)

  it("accept a prompt as a whole, even when a rendering accepts several", function()
    assert.same({ "raining, sea" }, words_of.parse({ "--prompt", "raining, sea" },
      require "moonreel.cli.sample").options.prompt)
    assert.same({ "a", "b" },
      dir:bake("return recipe {}", { "--prompt=['a', 'b']" }):get("sampling.prompts"))
  end)

  it("are refused by name and argument when nothing reads them", function()
    local s = dir:bake("return recipe {}",
      { { key = "model.drop_path", text = "0.5", argument = "--drop-path 0.5" } })
    unread("model.drop_path", function()
      -- also flags of one record
      for _, record in ipairs { false, "model" } do
        local ok, problem = pcall(s.require_readers, s, record or nil)
        assert.is_false(ok)
        assert.matches("^%-%-drop%-path 0%.5: model%.drop_path = 0%.5: this version has no "
          .. "reader for model%.drop_path", problem.message)
      end
      assert.is_true((pcall(s.require_readers, s, "scheduler")))
    end)
  end)
end)
