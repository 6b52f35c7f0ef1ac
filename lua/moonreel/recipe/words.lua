--- Guesses which name of moonreel.recipe.peers an unknown name means. Trainers name a thing
-- differently but with the same words, so names are compared word by word.
-- @module moonreel.recipe.words
local words = {}

-- {words, name}: an unlisted name that has these words gets the answer of the listed name, or means
-- its field. Sets are separated by `+`: the name must have one word of each set. Words of a set are
-- separated by `|`. The first row that fits counts, so narrow rows come before wide ones.
local ROWS <const> = {
  { "wandb", "wandb_name" },
  { "mlflow|aim|comet|swanlab|neptune|clearml|tensorboard", "report_to" },
  { "logger|loggers", "report_to" },
  { "lora|qlora|loha|lokr|adapter|adapters|dora|peft|dreambooth", "lora" },
  { "hub", "push_to_hub" },
  { "muon|newton|schulz", "use_muon" },
  { "updates|update+updates|num|max|steps", "num_train_steps" },
  { "max|limit+samples", "max_train_samples" },
  { "samples|imgs|images|videos|clips+per+gpu|device|batch|rank", "train_batch_size" },
  { "gpus+per", "num_gpus" },
  { "resume|resuming+weights|only|model", "pretrained_model_path" },
  { "resume|resuming|restart|continue", "resume" },
  { "log|track+grad|gradient|norm|loss|lr|images|videos|metrics|memory", "log_metrics" },
  { "tracker|trackers|tb", "report_to" },
  { "dist|distributed|nccl|gloo|master|rendezvous", "num_gpus" },
  { "per+epoch", "steps_per_epoch" },
  { "stop|last|end|final+step|steps|iter|iteration|epoch", "max_time" },
  { "tokenizer|t5|text|clip|encoder+path|name|dir|ckpt|model", "text_encoder_path" },
  { "vae|ae|autoencoder|first+path|name|ckpt|checkpoint|model|dir|pretrained|stage|weights",
    "vae_path" },
  { "time|hours|minutes|walltime+max|stop|limit", "max_time" },
  { "validation|val|eval|evaluation|test|sample|preview+prompt|prompts|neg|negative|frames|frame|"
    .. "size|height|width|steps|every|interval|freq|epochs|seed|guidance|guide|inference|shift|"
    .. "solver|fps|video|videos|images|image|scale|num|at", "validation_prompt" },
  { "negative|neg+prompt|prompts", "negative_prompt" },
  { "prompt|prompts+file|path|list|csv|txt|sampling|inference", "validation_prompt" },
  { "uncond|unconditional", "caption_dropout" },
  { "null|empty|drop|dropout+caption|captions|text|prompt|cond|class", "caption_dropout" },
  { "cfg+drop|prob", "caption_dropout" },
  { "ema|swa|averaging", "use_ema" },
  { "average+weights|model", "use_ema" },
  { "kl|lpips|perceptual|recon|reconstruction|rec+weight|loss|scale|coef|factor", "kl_weight" },
  { "disc|discriminator|gan|adversarial|adv", "gan_weight" },
  { "warmup|warm+init|start|lr|ratio|factor|steps|step|iters|up|epochs|type|style",
    "warmup_ratio" },
  { "weight|l2|adam+decay|reg|regularization", "weight_decay" },
  { "warmup", "warmup_ratio" },
  { "lr|rate|learning|cosine|linear|polynomial|anneal|annealing+decay|schedule|scheduler|"
    .. "annealing|cycles|min|end|final|gamma|power|restarts", "lr_scheduler" },
  { "annealing|anneal|constant|cosine|linear|polynomial+steps|iters|epochs", "lr_scheduler" },
  { "initial|init|start|peak|base|max|default+lr|learning", "base_lr" },
  { "lr", "base_lr" },
  { "eps|epsilon", "epsilon" },
  { "clip|clipping+norm|grad|grads|gradient|gradients|value", "clip_grad" },
  { "max|maximum+norm|gradient|grad|gradients", "clip_grad" },
  { "accumulate|accumulation|accum|acc|accumulated", "grad_accum" },
  { "batch+size|sizes|num|global|local|micro|per|train", "train_batch_size" },
  { "microbatches|microbatch|bsz|bs", "train_batch_size" },
  { "model+weights|path|file|dir|checkpoint|ckpt", "pretrained_model_path" },
  { "keep|total|max|last|top|best|num|n|limit+ckpts|ckpt|checkpoints|checkpoint|last|latest|saved|"
    .. "best", "save_total_limit" },
  { "pretrained|init|initial|base|start|load+weights|ckpt|checkpoint|model|path|state|from|dir|"
    .. "pretrained|transformer|dit|unet", "pretrained_model_path" },
  { "epoch|epochs+save|saving|ckpt|checkpoint", "save_epochs" },
  { "save|saving|ckpt|checkpoint|checkpoints|checkpointing+every|interval|freq|frequency|period|"
    .. "steps|iters|iterations|per", "save_steps" },
  { "log|logging|print|report|display+every|interval|freq|frequency|period|steps|step|iters",
    "log_interval" },
  { "output|out|save|experiment|exp|run|result|results|work|log|logs|logging|ckpt|checkpoint+dir|"
    .. "path|folder|root|directory", "output_dir" },
  { "seed|rng", "data_seed" },
  { "workers|worker", "num_data_workers" },
  { "prefetch|prefetching", "dataloader_prefetch_factor" },
  { "shuffle|shuffling", "shuffle" },
  { "pin|pinned", "pin_memory" },
  { "deterministic|determinism", "deterministic" },
  { "scaler|tf32|fp16|bf16|fp32|bfloat16|float16|half|dtype|precision|amp|autocast", "precision" },
  { "fp8|float8|int8|quant|quantize|quantization|nf4", "fp8" },
  { "compile|inductor|dynamo|cudagraphs|cudnn|benchmark", "torch_compile" },
  { "flash|sdpa|xformers|sage|attn|attention+use|enable|impl|implementation|backend|type|mode|"
    .. "attention|attn|kernel", "use_flash_attention" },
  { "activation|activations|gradient|grad|block|blocks+checkpoint|checkpointing|offload|"
    .. "offloading|ckpt", "activation_checkpoint" },
  { "recompute|recomputation|remat|rematerialization", "activation_checkpoint" },
  { "t5|clip|vae|text|encoder|encoders+cpu|offload|offloading|gpu", "text_encoder.residency" },
  { "fsdp|fsdp2|ddp|hsdp|usp|zero|zero1|zero2|zero3|stage2|stage3|dp|tp|pp|ep|sp|cp|expert|"
    .. "ulysses|ring|shard|sharding|sharded|reshard|replicate|replicas|parallel|parallelism|"
    .. "pipeline|unused|hpz", "fsdp" },
  { "static|bucket+graph|cap|mb|view", "fsdp" },
  { "optimizer|optim|params|nvme|cpu+offload|offloading|nvme|path", "fsdp" },
  { "overlap|sync|broadcast|reduce|allreduce|allgather+grad|gradient|bn|comm|reduce|buffers|no|"
    .. "allreduce|allgather|param|bucket|size", "overlap_comm" },
  { "gpu|gpus|nodes|node|ranks|cuda|visible|hosts|nnodes", "num_gpus" },
  { "beta|betas|b1|b2|momentum", "momentum" },
  { "lion|adafactor|came|prodigy|sophia|lamb|shampoo|soap|adan|sgd|adamw|adam|rmsprop",
    "optimizer" },
  { "logit|normal+mean|mu", "logit_mean" },
  { "logit|normal+std|sigma", "logit_std" },
  { "shift|shifting", "time_shift" },
  { "timestep|timesteps|time|times|sigma|sigmas|t|density+sampling|sampler|distribution|schedule|"
    .. "method|bias|weighting|min|max|mu", "timestep_sampling" },
  { "guidance", "guidance_scale" },
  { "cfg|guide+scale|weight|strength|value", "guidance_scale" },
  { "flow|weighting+matching|sigma|function|fn", "noise_offset" },
  { "snr|noise|offset|loss+gradient|gamma|weighting|weight|type|augmentation|aug|fn|function",
    "noise_offset" },
  { "sampling|inference|denoising|denoise|sampler+steps|num|timesteps", "num_inference_steps" },
  { "json|jsonl|csv|parquet|webdataset+file|files|path|dir|list|url|urls", "data_root" },
  { "crop|flip|resize+type|random|center|method|prob", "center_crop" },
  { "caption|captions+file|ext|extension|key|column|field|dir|folder", "caption_column" },
  { "column|columns|key", "caption_column" },
  { "caption|captions|trigger|token+tag|tags|word|words|prefix|suffix|separator",
    "caption_prefix" },
  { "text|prompt|context|num|max|seq|sequence|token|tokens+length|len|tokens", "max_text_length" },
  { "export|output|out|save|render|rendering+fps", "sampling.save_fps" },
  { "fps", "target_fps" },
  { "frame|frames|clip|video|temporal+stride|skip|interval|step", "stride" },
  { "videos|images+num|n|per", "sampling.num_samples" },
  { "bucket|buckets|reso|resolution|resolutions|reshape|resize|frames|pixels|area|duration|clip|"
    .. "video|frame|image|aspect|length+mode|method|min|max|minimum|maximum|num|number|per|size|"
    .. "sizes|extraction|ratio|target|sample|duration|seconds", "video_size" },
  { "video|train|frame|clip|image|data+width|height", "video_size" },
  { "latent|latents|text|embeddings|embeds+cache|cached|precompute|precomputed|dir",
    "cache_latents" },
  { "i2v|image|frame|first+i2v|video|cond|conditioning|prob|mode|task", "i2v" },
  { "train|training+data", "data_root" },
  { "dataset|datasets|data|train|training|annotation|annotations|meta|metadata|video|videos+path|"
    .. "dir|annotation|annotations|clips|videos|root|file|files|name|folder|directory|json|"
    .. "jsonl|csv|list|url|urls|config", "data_root" },
  { "freeze|frozen|trainable|unfreeze", "freeze" },
  { "train+layers|modules|params|blocks", "freeze" },
  { "unet|network|dit|transformer|net+config|depth|dim|type|name|layers|cfg", "num_layers" },
  { "attn|attention|head|heads+heads|head|dim|dims|size", "num_layers" },
  { "layers|blocks|heads|hidden|dim|dims+num|n|number|size|layers|heads|single|double|hidden",
    "num_layers" },
  { "vae|ae+tile|tiling|tiled|slicing|slice|chunk", "vae_tiling" },
  { "dropout", "dropout" },
  { "profile|profiler|profiling|trace|nsys|flops", "profiler" },
  { "timeout", "timeout" },
  { "nan|nans|inf|anomaly|spike|spikes", "skip_nan" },
  { "bad+skip|detect|threshold|num|step|steps", "skip_nan" },
  { "decoder|backend|reader|decord|pyav|torchcodec|opencv", "video_backend" },
  { "threads", "torch_threads" },
  { "qk|rope|rotary|pos|positional|position|patch|patchify|mlp|ffn|norm|normalization|channels|"
    .. "embed|embedder|embedding|encoding|compression|stride|activation|bias", "pos_embed" },
}

-- compiles rows into lists of sets of words
local function compiled_words()
  local rows = {}
  for i, row in ipairs(ROWS) do
    local sets = {}
    for part in (row[1] .. "+"):gmatch("([^+]*)%+") do
      local set = {}
      for word in part:gmatch("[^|]+") do
        set[word] = true
      end
      sets[#sets + 1] = set
    end
    rows[i] = { sets = sets, name = row[2] }
  end
  return rows
end

-- does each set have one of these words?
local function fits(own, sets)
  for _, set in ipairs(sets) do
    local found = false
    for _, word in ipairs(own) do
      found = found or set[word]
    end
    if not found then
      return false
    end
  end
  return true
end

local rows_by_words

--- The listed name that an unlisted name means, by the words of which it consists.
---@param name string  small letters, `_` between words
---@return string|nil
function words.alike(name)
  rows_by_words = rows_by_words or compiled_words()
  local own = {}
  for word in name:gmatch("[^_]+") do
    own[#own + 1] = word
  end
  for _, row in ipairs(rows_by_words) do
    if fits(own, row.sets) then
      return row.name
    end
  end
  return nil
end

--- All names that a row leads to.
---@return string[]
function words.models()
  local names = {}
  for i, row in ipairs(ROWS) do
    names[i] = row[2]
  end
  return names
end

return words
