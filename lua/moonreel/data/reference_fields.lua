--- Data sets of the references that do not consist of clips. Ref: opensora-1.2.md 4.2,
-- opensora-2.0.md 9.
return {
  record = "dataset",
  types = {
    text = { help = "2.0: prompts to render, in a .csv file or one per line" },
    BatchFeatureDataset = { help = "1.2: stored features, here those of a cache "
      .. "(job = \"extract\"), of the clips of an index" },
  },
  fields = {},
}
