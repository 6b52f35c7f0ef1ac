--- Field names of other trainers. A name that means the same as one of our fields is a spelling of
-- that field; for any other name the error says which field comes closest and how it differs.
-- Collected from the options of diffusers, transformers, accelerate, DeepSpeed, Lightning, Hydra
-- examples, torchtitan, Megatron-LM, kohya's scripts, musubi-tuner and Open-Sora.
-- @module moonreel.recipe.peers
local peers = {}

-- splits a text into a list of words
local function list(text)
  local out = {}
  for word in text:gmatch("%S+") do
    out[#out + 1] = word
  end
  return out
end

--- Records that other trainers name differently.
peers.records = { optimizer = "optim" }

--- Fields and their additional spellings.
peers.same = {
  ["optim.lr"] = list "learning_rate lrate",
  ["optim.betas"] = list "betas adam_betas",
  ["optim.eps"] = list "adam_epsilon epsilon",
  ["optim.weight_decay"] = list "adam_weight_decay wd",
  ["optim.grad_clip"] = list [[max_grad_norm gradient_clip_val gradient_clipping clip_grad
    clip_grad_norm grad_clip_norm grad_norm_clip max_norm]],
  ["optim.ema_decay"] = list "ema_rate",
  steps = list [[max_train_steps max_steps train_steps num_train_steps total_steps training_steps
    num_training_steps max_iters max_iterations train_iters num_iterations iterations n_steps
    iters num_iters]],
  epochs = list "num_train_epochs max_train_epochs max_epochs num_epochs n_epochs",
  accumulate = list [[gradient_accumulation_steps accumulate_grad_batches grad_accum_steps
    grad_accumulation_steps gradient_accumulation grad_accum accum_iter]],
  ckpt_every = list [[checkpointing_steps checkpoint_steps checkpoint_every checkpoint_interval
    ckpt_interval save_steps save_every save_interval save_freq save_every_n_steps
    every_n_train_steps]],
  keep_n_latest = list [[checkpoints_total_limit save_total_limit keep_last_n keep_latest_k
    max_checkpoints total_limit]],
  log_every = list [[logging_steps logging_interval log_interval log_every_n_steps log_freq
    log_steps print_every print_freq steps_per_print]],
  seed = list "global_seed random_seed manual_seed",
  num_workers = list [[dataloader_num_workers dataloader_workers max_data_loader_n_workers
    num_data_workers n_workers workers]],
  prefetch = list "dataloader_prefetch_factor",
  grad_checkpoint = list [[gradient_checkpointing enable_gradient_checkpointing
    use_gradient_checkpointing activation_checkpointing]],
  warmup_steps = list [[lr_warmup_steps num_warmup_steps warmup_num_steps lr_warmup_iters
    warmup_iters]],
  load = list "resume_from_checkpoint resume_from resume resume_ckpt resume_path",
  name = list "run_name experiment_name exp_name job_name wandb_run_name",
  wandb_project = list "tracker_project_name wandb_tracker_name log_tracker_name tracker_name",
  wandb_tags = list "tags",
  restarts = list "max_restarts",
  nproc_per_node = list "gpus_per_node devices_per_node procs_per_node",
  ["scheduler.loc"] = list "logit_mean",
  ["scheduler.scale"] = list "logit_std",
  ["dataset.frame_interval"] = list "frame_stride sample_stride",
  ["sampling.neg"] = list "negative_prompt negative_prompts",
  ["plugin_config.zero_stage"] = list "zero_stage",
  ["plugin_config.sp_size"] = list [[sequence_parallel_size context_parallel_size
    context_parallel_degree cp_size]],
  ["plugin_config.tp_size"] = list [[tp_size tensor_parallel_size tensor_parallel_degree
    tensor_model_parallel_size]],
  ["plugin_config.pp_size"] = list [[pp_size pipeline_parallel_size pipeline_parallel_degree
    pipeline_model_parallel_size]],
}

--- All spellings in peers.same.
peers.names = {}
for _, names in pairs(peers.same) do
  for _, name in ipairs(names) do
    peers.names[name] = true
  end
end

-- {the answer: what moonreel has instead, the names}
local others = {
  -- data and batches
  { "bucket_config has the batch of each bucket: bucket_config={'256px': {51: (1.0, 4)}}, "
    .. "keep and batch per rank",
    [[batch batch_size train_batch_size micro_batch_size per_device_train_batch_size
    train_micro_batch_size_per_gpu local_batch_size micro_batch device_batch_size
    per_gpu_batch_size batch_size_per_gpu batch_size_per_device per_gpu_train_batch_size]] },
  { "the batch of a step is the batch in bucket_config, times accumulate, times the number of "
    .. "ranks",
    "global_batch_size total_batch_size effective_batch_size" },
  { "an evaluation uses the batches of bucket_config; eval_in_turn makes it shorter",
    "eval_batch_size per_device_eval_batch_size val_batch_size" },
  { "data_path names an index NAME.mrx, or a list of clips (CSV, JSON lines, Parquet), for "
    .. "which moonreel data ingest builds an index first",
    [[dataset_name dataset_path dataset_config dataset_config_name dataset_root data_dir
    data_root data_folder data_config index index_path train_data train_data_dir
    train_data_path train_dir train_file instance_data_dir instance_data_root video_dir
    video_folder video_root image_dir image_folder meta_path csv_path annotation_path
    data_files meta_files json_path
    instance_dir train_data_config class_data_dir validation_dataset_file
    jsonl_path metadata_path manifest train_manifest]] },
  { "the columns of a list are chosen when its index is built: moonreel data ingest --columns "
    .. "path=VIDEO,text=TEXT",
    "caption_column text_column video_column image_column prompt_column caption_extension" },
  { "bucket_config says which lengths and sizes are trained, bucket_config={'256px': {51: "
    .. "(1.0, 4)}}; sampling.height, width, frames and resolution set those of renderings",
    [[max_num_frames sample_n_frames target_frames clip_length num_frame frame_count n_frames
    sequence_length image_size img_size video_size height width sample_size size target_size
    video_length video_resolution max_train_resolution resolution_list aspect_ratios
    enable_bucket min_bucket_reso max_bucket_reso bucket_reso_steps bucket_no_upscale
    height_buckets width_buckets frame_buckets max_frames min_frames frames group_by_length
    crop_size aspect_ratio_buckets aspect_ratio_bucketing dataset_num_frames dataset_resolution
    dataset_height dataset_width dataset_frames data_num_frames data_resolution data_height
    data_width data_frames train_num_frames train_resolution train_height train_width]] },
  { "rates of clips are limited by dataset.fps_max; dataset.frame_interval = n uses every n-th "
    .. "frame",
    "target_fps sample_fps video_fps source_fps max_fps train_fps frame_rate sample_rate "
    .. "frame_sample_rate stride dataset_fps data_fps" },
  { "the order is always shuffled, by seed and epoch; a fixed order is not supported",
    "shuffle shuffle_data shuffle_buffer_size shuffle_dataset" },
  { "to train on a part of the data, make an index of it: moonreel data filter, moonreel data "
    .. "split",
    "max_train_samples limit_train_batches num_samples_train train_split dataset_split split" },
  { "memory for decoded clips is always pinned; there is nothing to switch on",
    "pin_memory dataloader_pin_memory persistent_workers persistent_data_loader_workers" },
  { "tail says how the last samples of a bucket are trained: tail=short or tail=carry",
    "drop_last dataloader_drop_last" },
  { "a recipe with job=extract writes latents and features to a cache; a run with cached=true "
    .. "reads them; cache names the folder",
    [[cache_latents
    precompute_conditions precomputation_items
    cache_latents_to_disk cache_text_encoder_outputs
    cache_text_encoder_outputs_to_disk precompute_latents latent_cache latents_dir latents
    cache_latent cache_dir]] },
  { "captions are replaced by the empty caption with probability model.class_dropout_prob "
    .. "(STDiT3) or dropout_ratio (MMDiT)",
    [[caption_dropout_rate caption_dropout caption_dropout_p text_dropout cfg_dropout
    uncond_prob proportion_empty_prompts unconditional_prob conditioning_dropout_prob
    text_drop_prob text_drop caption_dropout_prob caption_drop_rate cond_drop_prob null_prob]] },
  { "clips are always resized and cropped to their bucket; there are no random flips or other "
    .. "augmentations",
    [[random_flip horizontal_flip center_crop random_crop flip_aug
    skip_frames_start skip_frames_end random_hflip
    color_aug augmentation
    augment]] },
  { "a caption is a column of the list from which the index is built: write there what a clip "
    .. "shows",
    [[instance_prompt caption captions class_prompt id_token shuffle_caption keep_tokens caption_prefix
    caption_suffix caption_tag_dropout_rate trigger_word token_string]] },
  { "prior preservation is not supported; to train on other pictures too, add them as a source "
    .. "with a weight in dataset.sources",
    [[with_prior_preservation prior_loss_weight num_class_images class_images_dir
    prior_generation_precision]] },
  -- run
  { "outputs is the folder in which each run makes its own, NNN-name; name=NAME names the run",
    [[output_dir output_path output_folder out_dir save_path work_dir workdir logging_dir
    log_dir default_root_dir exp_dir run_dir results_dir output ckpt_dir checkpoint_dir
    checkpoint_folder dump_folder output_name overwrite_output_dir save]] },
  { "use tensorboard=true, wandb=true, or both",
    [[report_to log_with logger loggers trackers tracker use_wandb enable_wandb
    enable_tensorboard use_tensorboard]] },
  { "wandb_project and wandb_entity name them, with wandb=true",
    "project project_name wandb_name wandb_entity_name entity" },
  { "checkpoints are saved by steps or by time: ckpt_every and ckpt_minutes",
    [[save_every_n_epochs save_epochs checkpointing_epochs every_n_epochs save_strategy
    save_every_epoch epoch_save_interval save_every_n_hours]] },
  { "keep_n_latest keeps the newest checkpoints; the best by a metric cannot be chosen",
    [[save_top_k save_last monitor load_best_model_at_end metric_for_best_model
    save_last_n_steps save_last_n_epochs]] },
  { "-n N starts ranks on each host, one per GPU, and --hostfile FILE names hosts",
    [[num_gpus n_gpus gpus ngpus num_processes world_size devices num_nodes nnodes n_nodes
    num_machines num_devices gpu_ids device_ids local_rank master_port main_process_port nodes
    main_process_ip node_rank machine_rank nproc master_addr rdzv_endpoint rdzv_backend rdzv_id]] },
  { "device is cpu or cuda, and -n N starts a rank per GPU",
    "accelerator gpu cuda use_cuda use_gpu use_cpu no_cuda" },
  { "plugin_config.zero_stage shares the state among ranks, 0 to 3, plugin_config.sp_size the "
    .. "tokens; optim.offload keeps the optimizer's state in host memory",
    [[strategy fsdp fsdp_config deepspeed deepspeed_config zero zero_optimization
    zero_optimization_stage deepspeed_stage ddp distributed_backend parallelism
    sharding_strategy
    parallel_backend dp_degree dp_shards pp_degree tp_degree cp_degree ep_size
    data_parallel_shard_degree offload_optimizer cpu_offload
    offload_optimizer_device zero_optimization_offload_optimizer fsdp_cpu_offload use_fsdp
    fsdp_sharding_strategy fsdp_offload_params deepspeed_config_file use_distributed_optimizer
    sequence_parallel ddp_backend ddp_find_unused_parameters find_unused_parameters
    zero_allow_untested_optimizer reduce_bucket_size allgather_bucket_size overlap_comm
    contiguous_gradients sp]] },
  { "load=RUN@STEP continues from the checkpoint of that step",
    "resume_step resume_epoch start_iter start_iteration resume_iter" },
  { "seed draws everything: order, crops, noise, times, initial weights",
    "data_seed seed_everything noise_seed init_seed set_seed" },
  { "training is always deterministic: the same recipe gives the same bits",
    "deterministic full_determinism deterministic_algorithms use_deterministic_algorithms" },
  { "a checkpoint always has everything that a resume needs, as safetensors; moonreel ckpt "
    .. "convert writes the weights alone",
    [[save_state save_model_as save_safetensors save_optimizer save_only_model save_weights_only
    no_load_optim async_mode save_on_each_node]] },
  { "steps and epochs end a run; moonreel stop saves a running one and ends it",
    [[early_stopping patience exit_interval exit_duration_in_mins max_time max_hours stop_after
    train_limit]] },
  { "sources have weights: dataset.sources={a={data_path='a.mrx', weight=3}}",
    "num_repeats repeats dataset_weights sampling_weights mixture_weights dataset_repeat" },
  { "tensorboard=true writes event files into the run's folder",
    "tensorboard_dir tensorboard_log tensorboard_log_dir tb_dir tb_log_dir tb_log" },
  { "moonreel plan RUN and moonreel log RUN --time show how the time of a run is spent",
    "profile profiler profiling enable_profiling wall_clock_breakdown" },
  { "the fields of watch limit the time of each phase of a rank: moonreel help watch",
    [[ddp_timeout timeout nccl_timeout distributed_timeout_minutes init_timeout_seconds
    train_timeout_seconds
    init_timeout]] },
  { "moonreel plan RECIPE --fit all finds the largest batches that fit",
    "auto_find_batch_size auto_scale_batch_size" },
  { "moonreel train trains, moonreel sample renders, job = \"eval_loss\" evaluates",
    "do_train do_predict" },
  { "moonreel plan RECIPE and moonreel doctor RECIPE check a run without starting it",
    "dry_run debug fast_dev_run sanity_check num_sanity_val_steps" },
  { "log_every sets how often a line is printed; log/rank-N.log in the run's folder has them all",
    [[verbose log_level
    logging_first_step logging_nan_inf_filter log_prefix log_config
    logging_level verbosity disable_tqdm enable_progress_bar]] },
  { "condition_config sets which frames are given to MMDiT, mask_ratios those that stay clean "
    .. "for STDiT3",
    [[i2v first_frame_conditioning image_drop_ratio random_mask image_conditioning
    conditioning_frames cond_ratio i2v_ratio]] },
  { "of a list the columns path and text and all columns of numbers are read; others are ignored",
    [[remove_unused_columns
    include_num_input_tokens_seen include_tokens_per_second
    include_inputs_for_metrics]] },
  { "intervals are counted in steps: ckpt_every, log_every",
    "steps_per_epoch interval_type" },
  -- numbers
  { "dtype is bf16, with f32 masters, moments and averages, or fp32; fp16 and loss scaling are "
    .. "not supported",
    [[mixed_precision precision fp16 bf16 amp use_amp autocast weight_dtype torch_dtype
    param_dtype full_bf16 full_fp16 save_precision loss_scale compute_dtype tf32 allow_tf32
    mixed_precision_param data_type dit_dtype vae_dtype text_encoder_dtype
    half_precision_backend downcast_bf16 half_precision half bfloat16]] },
  { "model.linear=f8 computes linear layers of the blocks in 8 bits",
    [[fp8 fp8_base
    fp8_llm fp8_vl fp8_t5 fp8_text_encoder layerwise_upcasting_modules
    float8 enable_fp8 fp8_scaled fp8_format enable_float8 use_fp8]] },
  { "optim.betas has both values: optim.betas={0.9,0.999}",
    "adam_beta1 adam_beta2 beta1 beta2 beta_1 beta_2 adam_beta_1 adam_beta_2" },
  { "optim.type names the optimizer: moonreel help optim.type",
    [[optim optimizer optimizer_type
    prodigy_beta3 prodigy_decouple prodigy_use_bias_correction beta3 d_coef
    optimizer_name optimizer_class optim_name optim_type opt
    optimizer_args optimizer_target amsgrad foreach fused capturable decoupled_weight_decay]] },
  { "optim.weight_decay shrinks the weights, optim.ema_decay averages them",
    "decay decay_rate" },
  { "optim.betas are the decay rates of the moments: optim.betas={0.9,0.999}",
    "momentum nesterov momenta" },
  { "optim.moment_bits = 8 keeps moments in 8 bits",
    "use_8bit_adam use_8bit adam_8bit adamw_8bit" },
  { "Adafactor is not supported; to save memory, optim.moment_bits = 8 stores moments in 8 bits, "
    .. "optim.offload keeps them in host memory", "use_adafactor" },
  { "lr_schedule is constant, cosine or 1cycle, with warmup_steps, min_lr and steps",
    [[lr_scheduler lr_scheduler_type lr_scheduler_name scheduler_type schedule lr_decay_style
    lr_policy lr_decay lr_scheduler_num_cycles lr_num_cycles num_cycles lr_scheduler_power
    lr_power lr_decay_steps lr_decay_iters decay_steps lr_scheduler_args decay_type
    lr_scheduler_kwargs lr_scheduler_target scheduler_target sched_name sched_type scheduler_name
    step_size gamma milestones t_max num_restarts cosine_annealing cycle_momentum]] },
  { "min_lr is a rate, not a ratio; for a tenth of lr: min_lr = function(r) return r.lr / 10 end",
    "lr_min_ratio min_lr_ratio lr_scheduler_min_lr_ratio min_lr_factor" },
  { "min_lr is the last rate of a cosine schedule and the first rate of 1cycle",
    "eta_min end_lr final_lr lr_end lr_min min_learning_rate minimum_lr" },
  { "warmup_steps is a number of steps; for a share of all steps: warmup_steps = function(r) "
    .. "return r.steps // 20 end",
    [[warmup_ratio lr_warmup_ratio warmup_epochs lr_warmup_fraction warmup_fraction warmup
    pct_start]] },
  { "lr is the rate of all weights, except the matrices under Muon (optim.muon.lr); it is not "
    .. "scaled by the number of ranks or the batch",
    [[scale_lr base_lr text_encoder_lr unet_lr network_lr lr_multiplier learning_rate_te
    backbone_lr blr lr_text_encoder lr_scale lr_mult layer_decay layerwise_lr_decay
    param_groups]] },
  { "optim.ema_decay averages the weights; optim.ema_decay=none turns averages off",
    [[use_ema ema enable_ema ema_model ema_decay_rate ema_update_after_step ema_update_interval
    ema_start_step update_ema_every ema_max_decay ema_power ema_inv_gamma offload_ema ema_beta
    ema_update_every ema_momentum]] },
  -- memory
  { "grad_checkpoint recomputes all blocks, grad_ckpt_settings a number of them; "
    .. "grad_ckpt_keep_attention keeps the results of attention",
    [[activation_checkpoint activation_checkpoint_mode recompute_granularity
    vae_cache_cpu img_in_txt_in_offloading enable_model_cpu_offload
    recompute_method
    recompute_num_layers gradient_checkpointing_kwargs selective_ac_option use_checkpoint
    checkpoint_activations ac_mode blocks_to_swap block_swap
    gradient_checkpointing_cpu_offload partition_activations]] },
  { "graphs are always compiled before the first step; there is nothing to switch on",
    [[torch_compile compile use_compile dynamo_backend dynamo cudnn_benchmark benchmark
    compile_mode]] },
  { "attention is always computed in tiles; there is nothing to switch on",
    [[sdpa
    enable_flashattn flash_attn use_flashattn
    xformers use_flash_attn flash_attention enable_xformers_memory_efficient_attention
    use_xformers attn_implementation attention_backend attn_mode use_flash_attention flash3
    split_attn mem_eff_attn]] },
  { "moonreel plan RECIPE shows what fits; vae.piece_size is the size of the pieces in an "
    .. "autoencoder",
    [[enable_tiling enable_slicing vae_tiling vae_slicing enable_vae_tiling enable_vae_slicing
    vae_spatial_tile_sample_min_size tiled tile_size vae_chunk_size]] },
  -- weights
  { "ckpt_path starts from weights, load continues a run; both name local files or folders; "
    .. "nothing is downloaded",
    [[pretrained_model_name_or_path pretrained_model pretrained_model_path pretrained_path
    pretrained_weights pretrained model_path model_name_or_path model_id base_model init_from
    init_weights finetune_from finetune load_from load_weights initial_load_path
    transformer_path dit unet_path network_weights load_checkpoint checkpoint checkpoint_path
    ckpt pretrained_checkpoint restore_from revision variant weights dit_path dit_weights
    non_ema_revision local_files_only trust_remote_code resume_if_exists]] },
  { "vae.from_pretrained and text_encoder.from_pretrained name local files or folders; nothing "
    .. "is downloaded",
    [[vae_path vae_name pretrained_vae_model_name_or_path vae_ckpt text_encoder_path t5_path
    text_encoder1 text_encoder2 text_encoder_1 text_encoder_2 text_encoder_name clip_path
    tokenizer_name tokenizer tokenizer_path vae_pretrained]] },
  { "all weights of the model are trained; there is no LoRA",
    [[lora lora_rank lora_alpha lora_dropout lora_r alpha lora_target_modules lora_layers
    use_lora
    training_type
    train_lora rank network_dim network_alpha network_module network_args
    network_dropout lora_weights peft peft_config use_peft target_modules lora_config use_dora]] },
  { "autoencoder and text encoders are not trained with the model; model.freeze_y_embedder and "
    .. "model.only_train_temporal freeze parts of the model",
    [[train_text_encoder freeze_vae freeze_text_encoder trainable_modules freeze
    network_train_unet_only train_only trainable_params freeze_modules train_unet_only]] },
  { "moonreel uploads nothing; moonreel ckpt convert writes a file for an upload by other means",
    [[push_to_hub hub_model_id hub_token huggingface_repo_id hub_strategy hub_private_repo
    async_upload]] },
  -- objective and rendering
  { "scheduler.sample_method draws times for STDiT3: uniform, or logit-normal with scheduler.loc "
    .. "and scale; train_times draws them for MMDiT",
    [[weighting_scheme timestep_sampling timestep_sampling_method flow_weighting_scheme
    mode_scale sigmoid_scale timestep_bias_strategy min_timestep max_timestep noise_scheduler
    density_sampling]] },
  { "scheduler.use_timestep_transform shifts times by the size of a clip, scheduler.shift by a "
    .. "fixed factor; sampling.flow_shift shifts those of a rendering",
    [[discrete_flow_shift flow_shift time_shift timestep_shift shift flow_matching_shift
    scheduler_shift]] },
  { "models are trained as rectified flows, so there are no loss weights by noise level, noise "
    .. "offsets or noise schedules",
    [[snr_gamma min_snr_gamma
    multires_noise_iterations multires_noise_discount adaptive_noise_scale
    noise_offset prediction_type loss_type loss_weighting
    ip_noise_gamma v_parameterization v_prediction zero_terminal_snr rescale_betas_zero_snr
    input_perturbation huber_c num_train_timesteps diffusion_steps beta_schedule
    noise_schedule loss_fn label_smoothing_factor label_smoothing neftune_noise_alpha sigma_max
    sigma_data p_mean p_std rho v_pred clip_sample sampler_name sampler_type]] },
  { "scheduler.num_sampling_steps is the number of steps of a rendering with STDiT3, "
    .. "sampling.num_steps with MMDiT",
    [[num_inference_steps inference_steps sample_steps infer_steps sampling_steps
    num_sample_steps sampler_steps sampler_num_steps generation_steps]] },
  { "scheduler.cfg_scale is the guidance of a rendering with STDiT3, sampling.guidance with MMDiT",
    "guidance_scale cfg guidance text_guidance_scale embedded_cfg_scale embedded_guidance_scale "
    .. "rescale_cfg guidance_rescale" },
  { "sampling.every=N renders during training, eval.every=N measures the loss; moonreel sample "
    .. "renders one checkpoint; moonreel help sampling lists the fields",
    [[validation_prompt validation_prompts validation_prompts_file sample_prompts
    validation_steps validation_epochs num_validation_images num_validation_videos
    sample_every sample_every_n_steps sample_every_n_epochs sample_at_first validation_every
    eval_steps eval_every eval_interval eval_freq val_check_interval check_val_every_n_epoch
    evaluation_strategy eval_strategy do_eval sample_interval sample_freq val_every eval_iters
    limit_val_batches val_split]] },
  -- models
  { "text_encoder.model_max_length is the number of text tokens",
    [[max_token_length max_text_len max_text_length tokenizer_max_length
    clip_skip
    text_encoder_max_length
    max_sequence_length seq_length seq_len max_length text_len text_length]] },
  { "model.in_channels is the number of latent channels, model.patch_size the latent cells "
    .. "along a side of a token",
    "num_channels latent_dim latent_channels patch in_channels" },
  { "model.theta is the base of MMDiT's rotation",
    "rope_theta rope_base theta" },
  { "model.drop_path skips blocks at random; other dropout is not supported",
    "dropout attention_dropout hidden_dropout dropout_prob dropout_rate attn_dropout" },
  { "model.depth, model.hidden_size and model.num_heads are the sizes of a model, model.type its "
    .. "family",
    [[num_layers n_layers num_hidden_layers n_layer num_blocks layers dim n_heads n_head
    heads hidden_dim embed_dim d_model num_attention_heads model_type
    model_name ffn_hidden_size ff_dim model_config attention_head_dim flavor arch architecture]] },
  { "the fields of model depend on model.type, those of vae on vae.type: moonreel help model, "
    .. "moonreel help vae", "pos_embed" },
  { "the journal has losses, norms, rates and times of all steps; weights.every adds the norms "
    .. "of blocks; moonreel log RUN prints it", "log_metrics log_grad_norm" },
  { "optim.type = \"muon\" updates the matrices of blocks by Muon; its fields are optim.muon.lr, "
    .. "optim.muon.momentum and others: moonreel help optim.muon",
    "use_muon muon newton_schulz_steps ns_steps" },
  { "vae_loss_config.kl_loss_weight and vae_loss_config.perceptual_loss_weight are weights of the "
    .. "loss of an autoencoder; moonreel help vae_loss_config lists all",
    "kl_weight lpips_weight perceptual_weight recon_loss_weight" },
  { "disc_loss_config.disc_start and gen_loss_config.disc_weight control the discriminator of an "
    .. "autoencoder; discriminator.type selects it", "gan_weight use_gan disc_start disc_weight" },
  { "spike.action says what a run does about losses that are not finite or unusually large: "
    .. "moonreel help spike",
    "skip_nan nan_check detect_anomaly" },
  { "clips are always decoded by FFmpeg, in num_workers separate processes",
    "video_backend video_decoder decord" },
  { "threads is the number of compute threads of a rank", "torch_threads omp_num_threads" },
  { "job says what a recipe does: train, extract, eval_loss, reconstruct, batch_search; model.type "
    .. "selects the model", "mode task task_type train_mode phase" },
  { "--stage NAME begins with this stage of a recipe that has stages", "stage stage_name" },
  { "a recipe inherits from others by their names: moonreel help recipe explains it",
    "defaults _target_ _self_ _base_ base_config" },
  { "fields stand at the top level or in a record of ours: steps, epochs, optim.lr, model.depth",
    [[trainer training train args train_args training_args training_arguments config
    hyperparameters params experiment hydra dataloader data datamodule callbacks]] },
}

local answers = {}
for _, row in ipairs(others) do
  for _, name in ipairs(list(row[2])) do
    assert(not answers[name], name)
    answers[name] = row[1]
  end
end

--- The answer for a name that means something else here, or that nothing here means.
---@param name string  small letters, `_` for `-` and `.`
---@return string|nil
function peers.answer(name) return answers[name] end

--- All names that have an answer.
---@return string[]  sorted
function peers.answered()
  local names = {}
  for name in pairs(answers) do
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end

return peers
