-- A small video autoencoder of the Open-Sora 1.2 type, trained on build/demo/demo.mrx (`make
-- demo-data`) in minutes on a CPU. Used by another recipe: vae.from_pretrained = its run's newest
-- checkpoint, with the same sizes.
return recipe {
  stages = { require("../lib/tiny_vae").stages(recipe) },
  dataset = { data_path = "build/demo/demo.mrx" },
  resolutions = { ["32px"] = { pixels = 1024, aspects = { { 1.0, 32, 32 } } } },
  seed = 7, log_every = 50,
}
